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
    :param integration: MuJoCo's integration state, warm start included.
    :param derived: Quantities of :data:`DERIVED`.
    :param model: Arrays of :data:`MODEL`.
    :param options: Physical options of :data:`OPTIONS`.
    :param attributes: The environment's own attributes, pickled.
    """

    signature: str
    integration: np.ndarray
    derived: dict[str, np.ndarray]
    model: dict[str, np.ndarray]
    options: dict[str, Any]
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
    model = {name: getattr(env.model, name).copy() for name in MODEL if hasattr(env.model, name)}
    options = {name: np.array(getattr(env.model.opt, name)) for name in OPTIONS}
    return Payload(signature(env.model), state, derived, model, options, plain.save(env, LEFT))


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
    for name, saved in payload.model.items():
        getattr(env.model, name)[:] = saved
    for name, saved in payload.options.items():
        setattr(env.model.opt, name, saved)
    mujoco.mj_setState(env.model, env.data, payload.integration, mujoco.mjtState.mjSTATE_INTEGRATION)
    # Contacts and whatever else follows from the state; it may touch the warm start, so the state is set once more.
    mujoco.mj_forward(env.model, env.data)
    mujoco.mj_setState(env.model, env.data, payload.integration, mujoco.mjtState.mjSTATE_INTEGRATION)
    for name, saved in payload.derived.items():
        getattr(env.data, name)[:] = saved
    plain.restore(env, payload.attributes, LEFT)


def signature(model: Any) -> str:
    """
    :param model: An ``MjModel``.
    :return: Version, sizes, and a check sum of the names in it.
    """
    import mujoco

    names = zlib.crc32(model.names)
    sizes = f"nq={model.nq}/nv={model.nv}/nu={model.nu}/nbody={model.nbody}/ngeom={model.ngeom}/nsite={model.nsite}"
    return f"{mujoco.__version__}/{sizes}/dt={model.opt.timestep}/{names:08x}"
