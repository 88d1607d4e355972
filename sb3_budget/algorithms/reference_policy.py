"""A copy of a policy that stays behind while the policy learns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th
from numpy.typing import NDArray
from stable_baselines3.common.policies import ActorCriticPolicy

if TYPE_CHECKING:
    from sb3_budget.algorithms.grpo import GRPO


class ReferencePolicy:
    """
    What the policy of a model was like. It is saved as arrays, which every machine can read, and which a model that has no
    use for a reference takes no notice of.

    :param model: The model whose present policy is copied.
    """

    def __init__(self, model: GRPO):
        self._saved: dict[str, NDArray[Any]] | None = None
        self.policy: ActorCriticPolicy | None = None
        self._build(model)
        self.follow(model)

    def _build(self, model: GRPO) -> None:
        # Made anew, since gSDE's noise cannot be copied, without a draw from the generators of the training.
        with th.random.fork_rng(devices=[]):
            policy = model.policy_class(
                model.observation_space, model.action_space, model.lr_schedule, use_sde=model.use_sde, **model.policy_kwargs
            )
        assert isinstance(policy, ActorCriticPolicy)
        policy.to(model.device).set_training_mode(False)
        self.policy = policy

    def follow(self, model: GRPO) -> None:
        """
        :param model: The model whose present policy is the reference from now on.
        """
        assert self.policy is not None
        self.policy.load_state_dict(model.policy.state_dict())

    def restore(self, model: GRPO) -> None:
        """
        After a load: make a policy of what was saved.

        :param model: The model that was loaded.
        """
        if self._saved is None:
            return
        self._build(model)
        assert self.policy is not None
        self.policy.load_state_dict({name: th.as_tensor(np.array(values)) for name, values in self._saved.items()})
        self._saved = None

    def log_prob(self, observations: Any, actions: th.Tensor) -> th.Tensor:
        """
        :param observations: Observations of n rows.
        :param actions: Actions in them.
        :return: Log-probabilities that the reference gives them, shape (n,).
        """
        assert self.policy is not None
        with th.no_grad():
            return self.policy.evaluate_actions(observations, actions)[1]

    def __getstate__(self) -> dict[str, Any]:
        if self.policy is None:
            return {"_saved": self._saved, "policy": None}
        saved = {name: values.numpy(force=True) for name, values in self.policy.state_dict().items()}
        return {"_saved": saved, "policy": None}
