"""The callback that measures the critic by continuing episodes from saved states."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from sb3_budget.callbacks.progress import Every
from sb3_budget.callbacks.requirements import require_bare, require_on_policy, require_state_access, require_top_level
from sb3_budget.vec_env.start import Start


class ValueAudit(NamedTuple):
    """
    The critic at some states against the mean discounted return of several continuations from each.

    :param bias: Mean of the critic's value less the return.
    :param error: Root of the mean squared difference, less what the spread of the continuations makes of it.
    :param correlation: Between values and returns over the states; NaN where either does not vary.
    """

    bias: float
    error: float
    correlation: float


def compare(values: NDArray[np.floating], returns: NDArray[np.floating]) -> ValueAudit:
    """
    :param values: The critic's values, shape (n_states,).
    :param returns: Discounted returns, shape (n_states, n_continuations).
    :return: How far they agree.
    """
    means = returns.mean(axis=1)
    differences = values - means
    # The mean of n returns is off by chance, by a variance of theirs / n, and so is the difference.
    noise = returns.var(axis=1, ddof=1).mean() / returns.shape[1] if returns.shape[1] > 1 else 0.0
    varies = values.std() > 0.0 and means.std() > 0.0
    return ValueAudit(
        float(differences.mean()),
        float(np.sqrt(max(0.0, np.mean(differences**2) - noise))),
        float(np.corrcoef(values, means)[0, 1]) if varies else np.nan,
    )


class ValueAuditCallback(BaseCallback):
    """
    Spends a share of the budget on knowing the critic: from states that training is in, the policy goes on several times in
    an environment of its own, and the discounted returns are compared with the critic's values (as VinePPO estimates
    values; Kazemnejad et al., 2024, https://arxiv.org/abs/2410.01679). Nothing is trained on these steps. They are in the
    ledger as ``verification_steps``.

    Explained variance compares the critic with its own targets, which it bootstraps. This compares it with what happens.

    :param audit_env: An environment of the same kind, ``EpisodeControlVecEnv(make_vec_env(...))`` without further wrappers:
        what the training environment's ``VecNormalize`` has learnt is applied to it. All its slots are used, and
        ``n_continuations`` divides their number. Where the training masks actions, so does the audit.
    :param audit_every: Steps between two audits.
    :param n_continuations: Episodes that go on from each state, at least 2 to tell noise from error.
    :param max_steps: Longest continuation [steps]; the critic completes what is longer. ``None`` for none.
    :param seed: Seed of the choice of states and of the actions. The model's seed by default.
    :param verbose: Verbosity level.
    :raises ValueError: if an argument is out of range, or, when training starts, environments or algorithm do not fit.
    """

    model: OnPolicyAlgorithm

    def __init__(
        self,
        audit_env: VecEnv,
        audit_every: int = 20_000,
        n_continuations: int = 4,
        max_steps: int | None = None,
        seed: int | None = None,
        verbose: int = 0,
    ):
        super().__init__(verbose)
        if audit_every < 1 or n_continuations < 2 or (max_steps is not None and max_steps < 1):
            raise ValueError(
                f"audit_every={audit_every} and max_steps={max_steps} must be at least 1, n_continuations={n_continuations} "
                "at least 2"
            )
        if audit_env.num_envs % n_continuations:
            raise ValueError(
                f"audit_env has {audit_env.num_envs} slots, which n_continuations={n_continuations} does not divide"
            )
        self.audit_env = require_bare("audit_env", audit_env)
        self.audit_every, self.n_continuations, self.max_steps = audit_every, n_continuations, max_steps
        self._audits = Every(audit_every)
        self._rng = np.random.default_rng(seed)
        self._seeded = seed is not None
        #: The latest audit.
        self.latest: ValueAudit | None = None

    def _init_callback(self) -> None:
        require_on_policy(self)
        self._control = require_state_access(self, "audit_env", self.audit_env)
        if hasattr(self.model.policy, "lstm_actor"):
            raise ValueError(
                "ValueAuditCallback continues from states of the simulator, and a recurrent policy has hidden states besides, "
                "which those do not hold"
            )
        self._normalize = self.model.get_vec_normalize_env()
        if not self._seeded and self.model.seed is not None:
            self._rng = np.random.default_rng(self.model.seed)
        self._seeded = True

    def _on_training_start(self) -> None:
        require_top_level(self)
        # An argument of MaskablePPO.learn().
        self._masks_actions = bool(self.locals.get("use_masking", False))
        if self._masks_actions and not self.audit_env.has_attr("action_masks"):
            raise ValueError("audit_env has no action_masks(), by which the training masks actions")
        # What cannot be saved shows here, and not at the first audit.
        self._control.get_states(0)
        self._audits.begin(self.num_timesteps)

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        if not self._audits.is_due(self.num_timesteps):
            return
        self.latest = self.audit()
        self.logger.record("budget/value_audit_bias", self.latest.bias)
        self.logger.record("budget/value_audit_error", self.latest.error)
        if not np.isnan(self.latest.correlation):
            self.logger.record("budget/value_audit_correlation", self.latest.correlation)

    def audit(self) -> ValueAudit:
        """
        Audit the critic now. Random numbers of the training are not touched.

        :return: What was found.
        """
        n_states = self.audit_env.num_envs // self.n_continuations
        slots = self._rng.choice(self._control.num_envs, size=n_states, replace=n_states > self._control.num_envs)
        states = self._control.get_states(slots.tolist())
        before = self.audit_env.ledger.total_steps
        devices = [self.model.device] if self.model.device.type == "cuda" else []
        distribution = vars(self.model.policy.action_dist)
        of_training = dict(distribution)
        self.audit_env.set_start_sampler(lambda slot: self._start(states[slot // self.n_continuations]), owner="audit")
        try:
            with th.random.fork_rng(devices=devices):
                th.manual_seed(int(self._rng.integers(2**31)))
                self.model.policy.set_training_mode(False)
                observations = self._normalised(self.audit_env.reset())
                values = self._values(observations)[:: self.n_continuations]
                returns = self._continue(observations).reshape(n_states, self.n_continuations)
        finally:
            # After Ctrl-C, too: the training's noise goes on, and whoever else uses the environment begins where it does.
            distribution.update(of_training)
            self.audit_env.set_start_sampler(None, owner="audit")
            self._control.ledger.verification_steps += self.audit_env.ledger.total_steps - before
        return compare(values, returns)

    def _start(self, state: Any) -> Start:
        return Start("audit", snapshot=state)

    def _continue(self, observations: Any) -> NDArray[np.float64]:
        """Discounted return of every slot's first episode."""
        n_envs, gamma = self.audit_env.num_envs, self.model.gamma
        # State-dependent noise (gSDE) is renewed as often as in training; left alone, all slots would share one.
        noise_lasts = self.model.sde_sample_freq if self.model.sde_sample_freq > 0 else self.model.n_steps
        returns, discount, alive = np.zeros(n_envs), 1.0, np.ones(n_envs, dtype=bool)
        steps = 0
        while alive.any():
            if steps % noise_lasts == 0 and self.model.use_sde:
                self.model.policy.reset_noise(n_envs)
            actions = self._act(observations)
            raw, rewards, dones, infos = self.audit_env.step(actions)
            if self._normalize is not None:
                rewards = self._normalize.normalize_reward(rewards)
            observations = self._normalised(raw)
            returns += np.where(alive, discount * rewards, 0.0)
            discount *= gamma
            steps += 1
            for slot in np.flatnonzero(dones & alive).tolist():
                if infos[slot].get("TimeLimit.truncated", False):
                    last = self._batch_of_one(infos[slot]["terminal_observation"])
                    returns[slot] += discount * self._values(self._normalised(last))[0]
            alive &= ~dones
            if self.max_steps is not None and steps >= self.max_steps and alive.any():
                returns += np.where(alive, discount * self._values(observations), 0.0)
                break
        return returns

    def _act(self, observations: Any) -> NDArray[Any]:
        masks = {"action_masks": np.stack(self.audit_env.env_method("action_masks"))} if self._masks_actions else {}
        predict: Any = self.model.predict
        actions: NDArray[Any] = predict(observations, deterministic=False, **masks)[0]
        return actions

    def _batch_of_one(self, observation: Any) -> Any:
        if isinstance(observation, dict):
            return {key: np.asarray(value)[None] for key, value in observation.items()}
        return np.asarray(observation)[None]

    def _normalised(self, observations: Any) -> Any:
        return observations if self._normalize is None else self._normalize.normalize_obs(observations)

    def _values(self, observations: Any) -> NDArray[np.float64]:
        with th.no_grad():
            tensors, _ = self.model.policy.obs_to_tensor(observations)
            values: th.Tensor = self.model.policy.predict_values(tensors)
        return values.numpy(force=True).ravel().astype(np.float64)
