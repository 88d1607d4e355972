"""PPO's update with the terms that GRPO may add: bounds of their own, a reference, ratios per episode."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.utils import explained_variance
from torch.nn import functional

from sb3_budget.algorithms.group_loss import clipped_objective, episode_ratio, k3
from sb3_budget.buffers.finished_group_buffer import FinishedGroupBufferMixin

if TYPE_CHECKING:
    from sb3_budget.algorithms.grpo import GRPO


def update(model: GRPO) -> None:
    """
    Train on the rollout buffer. Without any of the additional terms the result is that of ``PPO.train``, bit for bit.

    :param model: The model; its rollout buffer is not empty.
    """
    policy, progress = model.policy, model._current_progress_remaining
    policy.set_training_mode(True)
    model._update_learning_rate(policy.optimizer)
    clip_low: float = model.clip_range(progress)  # type: ignore[operator]  # _setup_model made it a schedule
    clip_high: float = clip_low if model.clip_range_high is None else model.clip_range_high(progress)
    clip_value = None if model.clip_range_vf is None else model.clip_range_vf(progress)  # type: ignore[operator]

    logs: dict[str, list[float]] = defaultdict(list)
    goes_on = True
    for _ in range(model.n_epochs):
        # PPO's, too, is that of the last epoch.
        logs.pop("train/approx_kl", None)
        for samples, episodes in _minibatches(model):
            loss, approx_kl = _loss(model, samples, episodes, clip_low, clip_high, clip_value, logs)
            if model.target_kl is not None and approx_kl > 1.5 * model.target_kl:
                goes_on = False
                break
            policy.optimizer.zero_grad()
            loss.backward()
            th.nn.utils.clip_grad_norm_(policy.parameters(), model.max_grad_norm)
            policy.optimizer.step()
        model._n_updates += 1
        if not goes_on:
            break

    buffer, logger = model.rollout_buffer, model.logger
    for key, values in logs.items():
        logger.record(key, float(np.mean(values)))
    logger.record("train/explained_variance", explained_variance(buffer.values.flatten(), buffer.returns.flatten()))
    if hasattr(policy, "log_std"):
        logger.record("train/std", th.exp(policy.log_std).mean().item())
    logger.record("train/n_updates", model._n_updates, exclude="tensorboard")
    logger.record("train/clip_range", clip_low)
    if clip_value is not None:
        logger.record("train/clip_range_vf", clip_value)


def _minibatches(model: GRPO) -> Iterator[tuple[Any, th.Tensor | None]]:
    if model.importance_sampling_level == "step":
        for samples in model.rollout_buffer.get(model.batch_size):
            yield samples, None
        return
    buffer = model.rollout_buffer
    assert isinstance(buffer, FinishedGroupBufferMixin)
    for samples, episodes in buffer.get_episodes(model.batch_size):
        yield samples, th.as_tensor(episodes, device=model.device)


def _loss(
    model: GRPO,
    samples: Any,
    episodes: th.Tensor | None,
    clip_low: float,
    clip_high: float,
    clip_value: float | None,
    logs: dict[str, list[float]],
) -> tuple[th.Tensor, float]:
    actions = samples.actions.long().flatten() if isinstance(model.action_space, spaces.Discrete) else samples.actions
    values, log_prob, entropy = model.policy.evaluate_actions(samples.observations, actions)
    values = values.flatten()
    advantages = samples.advantages
    if model.normalize_advantage and len(advantages) > 1:
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)

    log_ratio = log_prob - samples.old_log_prob
    ratio = th.exp(log_ratio) if episodes is None else episode_ratio(log_ratio, episodes)
    policy_loss = -clipped_objective(ratio, advantages, clip_low, clip_high).mean()
    if clip_value is not None:
        values = samples.old_values + th.clamp(values - samples.old_values, -clip_value, clip_value)
    value_loss = functional.mse_loss(samples.returns, values)
    entropy_loss = -th.mean(-log_prob) if entropy is None else -th.mean(entropy)
    loss = policy_loss + model.ent_coef * entropy_loss + model.vf_coef * value_loss
    if model.reference_policy is not None:
        divergence = k3(log_prob, model.reference_policy.log_prob(samples.observations, actions)).mean()
        loss = loss + model.beta * divergence
        logs["budget/kl"].append(divergence.item())

    with th.no_grad():
        approx_kl = th.mean((th.exp(log_ratio) - 1) - log_ratio).item()
        low, high = ratio < 1 - clip_low, ratio > 1 + clip_high
        for key, value in {
            "train/entropy_loss": entropy_loss,
            "train/policy_gradient_loss": policy_loss,
            "train/value_loss": value_loss,
            "train/clip_fraction": (low | high).float().mean(),
            "train/loss": loss,
            "budget/clip_ratio_low": (low & (advantages < 0)).float().mean(),
            "budget/clip_ratio_high": (high & (advantages > 0)).float().mean(),
        }.items():
            logs[key].append(value.item())
    logs["train/approx_kl"].append(approx_kl)
    return loss, approx_kl
