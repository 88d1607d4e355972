"""Which model the saved numbers of a MuJoCo simulator belong to, and which of them follow from others."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sb3_budget.core.words import resolve

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


class Layout(NamedTuple):
    """
    :param signature: Which model it is, in words.
    :param links: For :func:`sb3_budget.core.words.pack`: which numbers are expected to be equal to which.
    """

    signature: str
    links: NDArray[np.int64]


def find_layout(model: Any, n_integration: int, derived: Mapping[str, np.ndarray]) -> Layout:
    """
    :param model: An ``MjModel``.
    :param n_integration: Length of its integration state.
    :param derived: The numbers that follow it, flat, by name.
    :return: Their layout.
    """
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
