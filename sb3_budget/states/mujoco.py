"""States of MuJoCo environments."""

from __future__ import annotations

import zlib
from typing import Any, NamedTuple

import numpy as np

from sb3_budget.states import plain

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
    "actuator_biasprm", "actuator_gainprm", "actuator_gear", "body_inertia", "body_mass", "body_pos", "body_quat",
    "dof_armature", "dof_damping", "dof_frictionloss", "geom_friction", "geom_pos", "geom_quat", "geom_size",
    "jnt_stiffness", "site_pos", "site_quat",
)  # fmt: skip
#: The simulator itself, and what draws it.
LEFT = frozenset({"model", "data", "mujoco_renderer", "viewer"})


class Payload(NamedTuple):
    """
    :param signature: Which model it is.
    :param integration: MuJoCo's integration state, warm start included.
    :param derived: Quantities of :data:`DERIVED`.
    :param model: Arrays of :data:`MODEL`, and gravity.
    :param attributes: The environment's own attributes, pickled.
    """

    signature: str
    integration: np.ndarray
    derived: dict[str, np.ndarray]
    model: dict[str, np.ndarray]
    attributes: bytes


def save(env: Any) -> Payload:
    """
    :param env: The innermost environment.
    :return: Its state.
    """
    import mujoco

    state = np.empty(mujoco.mj_stateSize(env.model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(env.model, env.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
    derived = {name: getattr(env.data, name).copy() for name in DERIVED if hasattr(env.data, name)}
    model = {name: values.copy() for name, values in _model_arrays(env.model).items()}
    return Payload(signature(env.model), state, derived, model, plain.save(env, LEFT))


def restore(env: Any, payload: Payload) -> None:
    """
    :param env: An environment with the same model.
    :param payload: What :func:`save` returned.
    :raises ValueError: if the model is another one.
    """
    import mujoco

    if payload.signature != signature(env.model):
        raise ValueError(
            f"The state is one of the MuJoCo model {payload.signature}, but the environment has {signature(env.model)}"
        )
    for name, values in _model_arrays(env.model).items():
        values[:] = payload.model[name]
    mujoco.mj_setState(env.model, env.data, payload.integration, mujoco.mjtState.mjSTATE_INTEGRATION)
    # Contacts and whatever else follows from the state; it may touch the warm start, so the state is set once more.
    mujoco.mj_forward(env.model, env.data)
    mujoco.mj_setState(env.model, env.data, payload.integration, mujoco.mjtState.mjSTATE_INTEGRATION)
    for name, saved in payload.derived.items():
        getattr(env.data, name)[:] = saved
    plain.restore(env, payload.attributes)


def signature(model: Any) -> str:
    """
    :param model: An ``MjModel``.
    :return: Version, sizes, and a check sum of the names in it.
    """
    import mujoco

    names = zlib.crc32(model.names)
    sizes = f"nq={model.nq}/nv={model.nv}/nu={model.nu}/nbody={model.nbody}/ngeom={model.ngeom}/nsite={model.nsite}"
    return f"{mujoco.__version__}/{sizes}/dt={model.opt.timestep}/{names:08x}"


def _model_arrays(model: Any) -> dict[str, np.ndarray]:
    return {"gravity": model.opt.gravity, **{name: getattr(model, name) for name in MODEL}}
