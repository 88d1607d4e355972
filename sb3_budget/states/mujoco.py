"""States of MuJoCo environments."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.words import pack, resolve, unpack
from sb3_budget.states import plain
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
#: How a model is put together, which decides what frames coincide.
STRUCTURE = (
    "body_parentid", "body_dofnum", "body_sameframe", "geom_bodyid", "geom_sameframe", "site_bodyid", "site_sameframe",
)  # fmt: skip
#: What of a body that no joint moves is that of its parent, where it has not been shifted or turned.
WELDED = ("xpos", "xquat", "xmat", "cvel", "cacc")
#: Position and rotation of what is fixed to a body.
FRAMES = {"body": ("xipos", "ximat"), "geom": ("geom_xpos", "geom_xmat"), "site": ("site_xpos", "site_xmat")}
#: Numbers per body, geom or site.
WIDTHS = {
    "xpos": 3, "xquat": 4, "xmat": 9, "cvel": 6, "cacc": 6, "xipos": 3, "ximat": 9, "geom_xpos": 3, "geom_xmat": 9,
    "site_xpos": 3, "site_xmat": 9,
}  # fmt: skip
#: So many layouts of models are known at once.
LAYOUTS = 32
#: The simulator itself, what draws it, and what an environment was built from.
LEFT = frozenset(
    {
        "model", "data", "mujoco_renderer", "viewer", "fullpath", "width", "height", "camera_id", "camera_name", "metadata",
        "observation_structure",
    }
)  # fmt: skip


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


class Layout(NamedTuple):
    """
    :param signature: Which model it is, in words.
    :param links: For :func:`sb3_budget.core.words.pack`: which numbers are expected to be equal to which.
    """

    signature: str
    links: NDArray[np.int64]


def save(env: Any) -> Payload:
    """
    :param env: The innermost environment.
    :return: Its state.
    """
    import mujoco

    integration = np.empty(mujoco.mj_stateSize(env.model, mujoco.mjtState.mjSTATE_INTEGRATION))
    mujoco.mj_getState(env.model, env.data, integration, mujoco.mjtState.mjSTATE_INTEGRATION)
    derived = _views(env.data, DERIVED)
    layout = _layout(env.model, len(integration), derived)
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
    layout = _layout(env.model, n_integration, derived)
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


def _layout(model: Any, n_integration: int, derived: dict[str, np.ndarray]) -> Layout:
    import mujoco

    sizes = f"nq={model.nq}/nv={model.nv}/nu={model.nu}/nbody={model.nbody}/ngeom={model.ngeom}/nsite={model.nsite}"
    description = f"{mujoco.__version__}/{sizes}/dt={model.opt.timestep}"
    structure = tuple((name, tuple(getattr(model, name).tolist())) for name in STRUCTURE)
    lengths = tuple((name, len(view)) for name, view in derived.items())
    return _known_layout(description, model.names, n_integration, lengths, structure)


@lru_cache(LAYOUTS)
def _known_layout(
    description: str,
    names: bytes,
    n_integration: int,
    lengths: tuple[tuple[str, int], ...],
    structure: tuple[tuple[str, tuple[int, ...]], ...],
) -> Layout:
    check = zlib.crc32(repr((n_integration, lengths, structure)).encode(), zlib.crc32(names))
    model = {name: np.array(values, dtype=np.int64) for name, values in structure}
    firsts = dict(zip(dict(lengths), n_integration + np.cumsum([0, *dict(lengths).values()]), strict=False))
    links = np.arange(n_integration + sum(dict(lengths).values()))

    def link(name: str, rows: np.ndarray, other: str, others: np.ndarray) -> None:
        columns = np.arange(WIDTHS[name])
        links[firsts[name] + WIDTHS[name] * rows[:, None] + columns] = firsts[other] + WIDTHS[name] * others[:, None] + columns

    welded = np.flatnonzero(model["body_dofnum"] == 0)
    for name in WELDED:
        link(name, welded, name, model["body_parentid"][welded])
    bodies = np.arange(len(model["body_parentid"]))
    for kind, owners in (("body", bodies), ("geom", model["geom_bodyid"]), ("site", model["site_bodyid"])):
        position, rotation = FRAMES[kind]
        same = model[f"{kind}_sameframe"]
        for values, name, other in (
            ((1,), position, "xpos"),
            ((1, 3), rotation, "xmat"),
            ((2,), position, "xipos"),
            ((2, 4), rotation, "ximat"),
        ):
            rows = np.flatnonzero(np.isin(same, values))
            link(name, rows, other, owners[rows])
    return Layout(f"{description}/{check:08x}", resolve(links))
