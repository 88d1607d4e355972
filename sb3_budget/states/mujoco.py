"""States of MuJoCo environments."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sb3_budget.core.words import pack, unpack
from sb3_budget.states import plain
from sb3_budget.states.mujoco_layout import find_layout
from sb3_budget.states.shared import Shared, share, unshare

#: What the integration state leaves out and observations or rewards read. After a step these lag behind the positions
#: (they are those of its last substep), so that computing them anew would change the next reward.
DERIVED = (
    "actuator_force", "actuator_length", "actuator_velocity", "cacc", "cam_xmat", "cam_xpos", "cfrc_ext", "cfrc_int",
    "cinert", "cvel", "energy", "geom_xmat", "geom_xpos", "qacc", "qfrc_actuator", "qfrc_bias", "qfrc_constraint",
    "qfrc_passive", "sensordata", "site_xmat", "site_xpos", "subtree_angmom", "subtree_com", "subtree_linvel",
    "ten_length", "ten_velocity", "ximat", "xipos", "xmat", "xpos", "xquat",
)  # fmt: skip
#: What environments change in a model when they are reset: where goals and doors are, and randomised dynamics.
MODEL = (
    "actuator_biasprm", "actuator_ctrlrange", "actuator_forcerange", "actuator_gainprm", "actuator_gear", "body_inertia",
    "body_ipos", "body_iquat", "body_mass", "body_pos", "body_quat", "dof_armature", "dof_damping", "dof_frictionloss",
    "dof_solimp", "dof_solref", "geom_friction", "geom_gap", "geom_margin", "geom_pos", "geom_quat", "geom_size",
    "geom_solimp", "geom_solref", "jnt_range", "jnt_stiffness", "qpos0", "qpos_spring", "site_pos", "site_quat",
    "tendon_damping", "tendon_stiffness",
)  # fmt: skip
OPTIONS = ("gravity", "wind", "magnetic", "density", "viscosity", "impratio")
#: The simulator itself, and what draws it.
LEFT = frozenset({"model", "data", "mujoco_renderer", "viewer"})


class Payload(NamedTuple):
    """
    :param signature: Which model it is.
    :param numbers: MuJoCo's integration state, warm start included, and the quantities of :data:`DERIVED`, packed.
    :param model: Arrays of :data:`MODEL` and physical options of :data:`OPTIONS`.
    :param attributes: The environment's own attributes, pickled.
    """

    signature: str
    numbers: bytes
    model: Shared
    attributes: Shared


def save(env: Any) -> Payload:
    """
    :param env: The innermost environment.
    :return: Its state.
    """
    import mujoco

    integration = np.empty(mujoco.mj_stateSize(env.model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(env.model, env.data, integration, mujoco.mjtState.mjSTATE_INTEGRATION)
    derived = _views(env.data, DERIVED)
    layout = find_layout(env.model, len(integration), derived)
    numbers = np.concatenate([integration, *derived.values()]).view(np.uint64)
    options = [np.atleast_1d(getattr(env.model.opt, name)) for name in OPTIONS]
    model = np.concatenate([*options, *_views(env.model, MODEL).values()])
    return Payload(layout.signature, pack(numbers, layout.links), share(model.tobytes()), share(plain.save(env, LEFT)))


def restore(env: Any, payload: Payload) -> None:
    """
    :param env: An environment with the same model.
    :param payload: What :func:`save` returned.
    :raises ValueError: if the model is another one.
    """
    import mujoco

    n_integration = mujoco.mj_stateSize(env.model, mujoco.mjtState.mjSTATE_INTEGRATION)
    derived = _views(env.data, DERIVED)
    layout = find_layout(env.model, n_integration, derived)
    if payload.signature != layout.signature:
        raise ValueError(
            f"The state is one of the MuJoCo model {payload.signature}, but the environment has {layout.signature}"
        )
    numbers = unpack(payload.numbers, layout.links).view(np.float64)
    model = np.frombuffer(unshare(payload.model))
    for name in OPTIONS:
        shape = np.shape(getattr(env.model.opt, name))
        option, model = np.split(model, [math.prod(shape)])
        setattr(env.model.opt, name, option.reshape(shape))
    _write(_views(env.model, MODEL), model)
    mujoco.mj_setState(env.model, env.data, numbers[:n_integration], mujoco.mjtState.mjSTATE_INTEGRATION)
    # Contacts and whatever else follows from the state; it may touch the warm start, so the state is set once more.
    mujoco.mj_forward(env.model, env.data)
    mujoco.mj_setState(env.model, env.data, numbers[:n_integration], mujoco.mjtState.mjSTATE_INTEGRATION)
    _write(derived, numbers[n_integration:])
    plain.restore(env, unshare(payload.attributes), LEFT)


def _views(owner: Any, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Arrays of a model or its data as flat views, those of them that this version of MuJoCo has."""
    return {name: getattr(owner, name).reshape(-1) for name in names if hasattr(owner, name)}


def _write(views: dict[str, np.ndarray], values: np.ndarray) -> None:
    first = 0
    for view in views.values():
        view[:] = values[first : first + len(view)]
        first += len(view)
