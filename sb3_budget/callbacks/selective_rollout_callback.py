"""The callback that stops hopeless episodes of an on-policy algorithm."""

from __future__ import annotations

import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import unwrap_vec_wrapper

from sb3_budget.buffers.selective_rollout_buffer import SelectiveBufferMixin
from sb3_budget.callbacks.audit import Audit
from sb3_budget.callbacks.bootstrap import Bootstrap
from sb3_budget.callbacks.gate_hooks import GateHooks, require_uncapped
from sb3_budget.callbacks.look_times import LookTimes
from sb3_budget.callbacks.requirements import (
    as_steps,
    require_finite,
    require_on_policy,
    require_steps_or_fraction,
    require_top_level,
)
from sb3_budget.callbacks.rollout_statistics import RolloutStatistics
from sb3_budget.callbacks.rollout_view import Viewer
from sb3_budget.callbacks.state_files import read_state, write_state
from sb3_budget.callbacks.stop_conditions import StopConditions
from sb3_budget.core.episodes import EpisodeTracker
from sb3_budget.core.gate_rules import limit_stops
from sb3_budget.core.gates import Gate, QuantileGate
from sb3_budget.core.ranges import require_share
from sb3_budget.core.survivors import SurvivorWeights
from sb3_budget.vec_env.episode_control_vec_env import EpisodeControlVecEnv

#: Share of the episodes that must live to their time limit where the critic's values alone say what is hopeless. On
#: Walker2d-v5 stops came before the falls, none was learnt from, and a policy that falls after 100 steps was never mended:
#: next to no episode lives there. On Ant-v5, where gates do no harm, most do.
MIN_SURVIVAL = 0.25
#: Share of the collection time from which on the gate's own cost is reported.
COSTLY_SHARE = 0.1


class SelectiveRolloutCallback(BaseCallback):
    """
    Stops episodes that a gate judges hopeless and frees their slots for new ones at once.

    The environment must contain a :class:`~sb3_budget.EpisodeControlVecEnv` or
    :class:`~sb3_budget.StaggeredResetVecEnv`. A stopped episode is a truncation: Stable-Baselines3 bootstraps it
    with its own critic. The number of steps per update does not change; what changes is where they are spent. The
    critic's values come from the rollout itself, so that a gate costs no extra forward pass.

    With :class:`~sb3_budget.SelectiveRolloutBuffer` stopped episodes can be given less weight; Stable-Baselines3's
    own buffers work too.

    A decision at step ``t`` uses the rewards before it and :math:`V(s_t)`, and takes effect at step ``t + 1``. An
    episode that ends by itself until then keeps its natural end.

    A gate that decides for whole groups, such as :class:`~sb3_budget.ConvergenceGate`, has its own time and audit:
    ``check_interval``, ``grace``, ``min_active`` and the audit's arguments do not concern it.

    :param gate: The rule, or a number as short for ``QuantileGate(number)``.
    :param check_interval: An episode is judged every so many of its steps; a float is a fraction of the horizon, and
        stands for at least 20 steps.
    :param grace: An episode is not judged before this age [steps]; a float is a fraction of the horizon, and stands
        for at least 40 steps and at least :math:`0.4 / (1 - \\gamma)`: episodes that are shorter than what the discount
        factor looks ahead teach another task. With short episodes or a discount factor near 1 that may be never, which is
        said once.
    :param warmup: No stops before so many steps; a float is a fraction of the training. The critic is not worth
        listening to earlier.
    :param min_explained_variance: No stops while the critic explained less of the last rollout's returns.
    :param min_survival: No stops while a smaller share of the episodes would live to their time limit, as they end now. An
        environment that ends hopeless episodes itself needs no gate, and stops would hide those ends from the policy. 0.25
        for a :class:`~sb3_budget.QuantileGate`, as by default, which it says once; 0 for all others, which have a reason of
        their own. Where nothing limits the length of an episode it does not wait.
    :param min_active: Number of slots that must run on at every check, where there are several.
    :param max_stops_per_check: Cap on the stops of one check, the lowest values first.
    :param max_stops_per_rollout: Cap on the stops of one rollout.
    :param stop_probability: Chance that an episode which the gate rejects is stopped. Below 1, episodes that are
        spared weigh ``1 / (1 - stop_probability)`` from there on, which keeps the gradient unbiased; needs a
        selective buffer.
    :param audit_fraction: Chance that an episode runs on to its own end when it is first rejected, to measure the
        gate. 0 switches the audit off.
    :param audit_step_fraction: No new audit begins while audited steps exceed this share of all steps. Audited
        episodes are long: on a task of 1000 steps that the gate cuts to 90, a tenth of the episodes would be half
        of the steps.
    :param bootstrap: What completes the return of a stopped episode: ``"critic"`` (Stable-Baselines3's own),
        ``"target"`` (a Polyak average of it), ``"heads"`` (the critics that did not judge it, see ``gate_head``) or
        ``"none"`` (nothing, the rest counts as 0: with negative rewards a stop then looks like a gain).
    :param tau: Polyak coefficient of ``"target"``, per update.
    :param gate_head: Judge with this head of an :class:`~sb3_budget.EnsembleActorCriticPolicy` instead of the mean.
        An error that selects an episode then does not sit in its bootstrap too.
    :param horizon: Length of a full episode [steps], for the fractions. Found from the environment by default.
    :param seed: Seed of the caps' ties, coin flips and audit draws. The model's seed by default.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range, or, when training starts, the environment, algorithm or
        buffer cannot do what is asked.
    """

    model: OnPolicyAlgorithm

    def __init__(
        self,
        gate: Gate | float = 0.4,
        check_interval: int | float = 0.02,
        grace: int | float = 0.04,
        warmup: int | float = 0.1,
        min_explained_variance: float | None = None,
        min_survival: float | None = None,
        min_active: int = 1,
        max_stops_per_check: int | None = None,
        max_stops_per_rollout: int | None = None,
        stop_probability: float = 1.0,
        audit_fraction: float = 0.1,
        audit_step_fraction: float = 0.05,
        bootstrap: str = "critic",
        tau: float = 0.005,
        gate_head: int | None = None,
        horizon: int | None = None,
        seed: int | None = None,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        self.gate: Gate = gate if callable(gate) else QuantileGate(gate)
        for name, value in (("check_interval", check_interval), ("grace", grace), ("warmup", warmup)):
            require_steps_or_fraction(name, value)
        if check_interval == 0:
            raise ValueError("check_interval must be positive: an episode cannot be judged every 0 steps")
        if horizon is not None and horizon < 1:
            raise ValueError(f"horizon={horizon} must be at least 1 step")
        if min_survival is not None:
            require_share("min_survival", min_survival)
        if not 0.0 < stop_probability <= 1.0:
            raise ValueError(f"stop_probability={stop_probability} must lie in (0, 1]")
        if not (0.0 <= audit_fraction <= 1.0 and 0.0 <= audit_step_fraction <= 1.0):
            raise ValueError(
                f"audit_fraction={audit_fraction} and audit_step_fraction={audit_step_fraction} must lie in [0, 1]"
            )
        if min_active < 0 or min(max_stops_per_check or 0, max_stops_per_rollout or 0) < 0:
            raise ValueError("min_active, max_stops_per_check and max_stops_per_rollout must not be negative")
        require_uncapped(gate, stop_probability, max_stops_per_check, max_stops_per_rollout)
        self.check_interval, self.grace, self.horizon, self.warmup = check_interval, grace, horizon, warmup
        self.min_explained_variance, self.min_survival = min_explained_variance, min_survival
        self._conditions = StopConditions()
        self.min_active = min_active
        self.max_stops_per_check = max_stops_per_check
        self.max_stops_per_rollout = max_stops_per_rollout
        self.stop_probability = stop_probability
        self.audit_fraction = audit_fraction
        self.audit_step_fraction = audit_step_fraction
        self.gate_head = gate_head
        self.seed = seed
        self.bootstrap = Bootstrap(bootstrap, tau, gate_head)
        self.n_looks = 0
        self.n_rejections = 0
        self.n_stops = 0
        self._rng = np.random.default_rng(seed)
        self._seeded = seed is not None
        self._tracker: EpisodeTracker | None = None
        self._audit: Audit | None = None
        self._last_infos: Any = None
        self._warned_cost = False
        self._warned_grace = False

    # ------------------------------------------------------------------ set-up

    def _init_callback(self) -> None:
        require_on_policy(self)
        venv = unwrap_vec_wrapper(self.training_env, EpisodeControlVecEnv)
        if venv is None:
            raise ValueError(
                "SelectiveRolloutCallback needs StaggeredResetVecEnv or EpisodeControlVecEnv around the base VecEnv: "
                "VecNormalize(StaggeredResetVecEnv(make_vec_env(...)))"
            )
        if not venv.enabled:
            raise ValueError(
                f"The training environment's {type(venv).__name__} has enabled=False: it cannot stop episodes. If "
                "StaggeredResetCallback is to switch it on, list that callback first"
            )
        if self.min_active >= venv.num_envs > 1:
            raise ValueError(f"min_active={self.min_active} of {venv.num_envs} slots leaves none that could be stopped")
        self._venv = venv
        buffer = self.model.rollout_buffer
        self._buffer = buffer if isinstance(buffer, SelectiveBufferMixin) else None
        if self.stop_probability < 1.0 and self._buffer is None:
            raise ValueError(
                "stop_probability < 1 weighs the episodes that are spared: pass rollout_buffer_class=SelectiveRolloutBuffer"
            )
        if not self._seeded and self.model.seed is not None:
            self._rng = np.random.default_rng(self.model.seed)
            self._seeded = True
        if self._buffer is not None:
            self._buffer.seed(self.model.seed)
        self._viewer = Viewer(self.model, venv)
        self._hooks = GateHooks(self.gate, buffer, self._viewer.group_size, self._viewer.has_heads)
        self._times = LookTimes(venv, self.check_interval, self.grace, self.horizon, self.model.gamma)
        if self._times.silence is not None and not self._hooks.whole_groups and not self._warned_grace:
            self._warned_grace = True
            warnings.warn(self._times.silence, UserWarning, stacklevel=2)
        if self._least_survival() > 0.0:
            self._find_limit()
        self.bootstrap.set_up(self.model)
        self._statistics = RolloutStatistics()

    def _least_survival(self) -> float:
        if self.min_survival is not None:
            return self.min_survival
        return MIN_SURVIVAL if isinstance(self.gate, QuantileGate) else 0.0

    def _find_limit(self) -> None:
        """What tells how many episodes live to their limit needs one."""
        try:
            self._times.find_horizon()
        except ValueError:
            if self.min_survival is not None:
                raise

    def _on_training_start(self) -> None:
        require_top_level(self)
        n_envs, ages = self._venv.num_envs, self._venv.ages
        gamma = self.model.gamma
        if self._tracker is None or len(self._tracker.lengths) != n_envs or not (ages == self._tracker.lengths).all():
            self._tracker = EpisodeTracker(ages, gamma)
            self._last_infos = None
            self._survivors = SurvivorWeights(n_envs, self.stop_probability)
            if self._audit is not None:
                self._audit.drop_running(n_envs)
        if self._audit is None:
            self._audit = Audit(n_envs, self.audit_fraction, self.audit_step_fraction, gamma)
        warmup_steps = as_steps(self.warmup, self.model._total_timesteps)
        self._conditions.start(warmup_steps, self.min_explained_variance, self._least_survival(), self._times.horizon)

    # ------------------------------------------------------------------ steps

    def _on_rollout_start(self) -> None:
        self._stops_left = np.inf if self.max_stops_per_rollout is None else self.max_stops_per_rollout
        self._conditions.start_rollout(self.num_timesteps)
        self._statistics.start_rollout()
        self._viewer.start_rollout()
        self.bootstrap.update(self.model)

    def _on_step(self) -> bool:
        began = perf_counter()
        assert self._tracker is not None and self._audit is not None
        rewards, dones, infos = self.locals["rewards"], self.locals["dones"], self.locals["infos"]
        values = self.locals["values"].numpy(force=True).ravel().astype(np.float64)
        heads = self._viewer.value_heads()
        judged = values if self.gate_head is None or heads is None else heads[self.gate_head]
        self._tracker.visit(judged)
        self._weigh_survivors()
        self._judge(judged, heads, dones)
        final_values, earned = {}, rewards
        if np.count_nonzero(dones):
            # What completes a stopped return is added to its last reward, and is not earned.
            earned = rewards.copy()
            final_values = self._end_episodes(rewards, dones, infos)
            self._hooks.end(dones, infos)
            self._survivors.end(dones)
        self._audit.add(earned, dones, final_values)
        self._conditions.add(self._tracker.lengths, dones, infos)
        self._tracker.add(rewards, dones)
        self._last_infos = infos
        self._statistics.gate_seconds += perf_counter() - began
        return True

    def _judge(self, values: NDArray[np.float64], heads: NDArray[np.float64] | None, dones: NDArray[np.bool_]) -> None:
        assert self._tracker is not None and self._audit is not None
        lengths = self._tracker.lengths
        due = self._times.due(lengths)
        look = due & ~self._audit.running if self._audit.n_running else due
        view = self._viewer.view(
            self.locals, self._last_infos, self._tracker, values, heads, due, look, self.active, self._rng
        )
        look = view.look
        mask = np.asarray(self.gate(view), dtype=bool)
        if mask.shape != look.shape:
            raise ValueError(f"A gate must return a mask of the shape {look.shape}, one entry per slot, got {mask.shape}")
        if not view.active:
            return
        self._hooks.drop(mask, view)
        # A slot that has ended by itself at this very step has nothing left to stop.
        rejected = mask & ~dones if self._hooks.whole_groups else mask & look & ~dones
        n_rejected = int(np.count_nonzero(rejected))
        self.n_looks += int(np.count_nonzero(look))
        self.n_rejections += n_rejected
        if not n_rejected:
            return
        slots = np.flatnonzero(rejected if self._hooks.whole_groups else self._spare(rejected, values))
        if len(slots):
            self._venv.request_stop(slots)
            self._stops_left -= len(slots)
            self.n_stops += len(slots)

    def _spare(self, rejected: NDArray[np.bool_], values: NDArray[np.float64]) -> NDArray[np.bool_]:
        """:return: The rejected slots that neither audit nor cap nor coin lets run on."""
        assert self._audit is not None
        audited = self._audit.draw(rejected, values, self._rng)
        if audited.any():
            self._venv.mark_audited(np.flatnonzero(audited))
        # Capped before the coin is tossed: an episode that the cap spares has not survived a toss.
        stop = limit_stops(rejected & ~audited, values, int(min(self._cap(), self._stops_left)), self._rng)
        return self._survivors.toss(stop, self._rng)

    @property
    def active(self) -> bool:
        """Whether the gate may stop episodes: the warm-up is over, the critic good enough, and enough episodes would live."""
        return self._conditions.met(self.num_timesteps)

    def _cap(self) -> int:
        n_envs = self._venv.num_envs
        cap = n_envs - self.min_active if n_envs > 1 else 1
        return cap if self.max_stops_per_check is None else min(cap, self.max_stops_per_check)

    def _weigh_survivors(self) -> None:
        if self.stop_probability == 1.0:
            return
        weights = self._survivors.advance()
        if self._buffer is not None and (weights != 1.0).any():
            self._buffer.scale_slots(np.arange(len(weights)), weights)

    def _end_episodes(self, rewards: NDArray[np.floating], dones: NDArray[np.bool_], infos: Any) -> dict[int, float]:
        """Count the ends of this step, complete stopped returns, and value the last states of audited episodes."""
        assert self._audit is not None
        final_values, stopped = {}, []
        for slot in dones.nonzero()[0].tolist():
            info = infos[slot]
            end = info["sb3_budget"]
            self._statistics.add_end(end)
            if self._audit.running[slot] and info.get("TimeLimit.truncated", False):
                final_values[slot] = self.bootstrap.critic_value(
                    self.model, info["terminal_observation"], slot, self.locals.get("lstm_states")
                )
            if end["reason"] == "stopped":
                stopped.append(slot)
                self.bootstrap.complete(self.model, rewards, info, slot)
        if stopped and self._buffer is not None:
            self._buffer.mark_stopped(stopped)
        return final_values

    # ------------------------------------------------------------------ logs

    def _on_rollout_end(self) -> None:
        assert self._audit is not None
        buffer = self.model.rollout_buffer
        require_finite(buffer, self.num_timesteps)
        log = self._statistics.log_values(buffer, self._audit.statistics(), self._venv.ledger)
        for key, value in {**log, **self._conditions.end_rollout(buffer), **self._hooks.log_values()}.items():
            self.logger.record(key, value)
        lifetimes = self._statistics.lifetimes()
        if lifetimes is not None:
            self.logger.record("budget/lifetime", lifetimes, exclude=("stdout", "log", "json", "csv"))
        overhead = self._statistics.overhead
        if overhead > COSTLY_SHARE and self._statistics.n_rollouts >= 10 and not self._warned_cost:
            self._warned_cost = True
            warnings.warn(
                f"The gate takes {overhead:.0%} of the time of collecting rollouts; look less often (check_interval) or use "
                "a cheaper gate.",
                UserWarning,
                stacklevel=2,
            )

    # ------------------------------------------------------------------ persistence

    def save(self, path: str | Path) -> None:
        """
        Save what the gate has learnt: its windows, the audit's record, the target critic, counters and generator.

        :param path: File to write.
        """
        state = (self.gate, self._audit, self.n_looks, self.n_rejections, self.n_stops, self._rng, self._conditions.state())
        write_state(path, SelectiveRolloutCallback, (state, self.bootstrap.target_state()))

    def load(self, path: str | Path) -> None:
        """
        Take over what :meth:`save` wrote, before ``learn`` is called.

        :param path: File to read.
        :raises ValueError: if it is damaged or not such a callback's.
        """
        state, target_state = read_state(path, SelectiveRolloutCallback)
        self.gate, self._audit, self.n_looks, self.n_rejections, self.n_stops, self._rng, learnt = state
        self._conditions.load_state(learnt)
        self.bootstrap.load_target_state(target_state)
        self._seeded = True
