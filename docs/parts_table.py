"""Writes ``results/parts.md``: which part of the recommendation ends better than which control, task by task."""

import json
from pathlib import Path
from typing import Any

from sb3_budget.bench.summary import paired

RESULTS = Path(__file__).parent / "results"
TASKS = ("HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Pendulum-v1", "Swimmer-v5", "Hopper-v5")
#: Where a gate waits, its controls are those of one that does not.
LABELS = ("", "+always")
#: An arm, and what it is compared with.
PAIRS = (
    ("full", "stock"),
    ("full", "random-gate"),
    ("full", "short-horizon"),
    ("select", "random-gate"),
    ("select", "short-horizon"),
    ("horizon", "short-horizon"),
    ("stagger", "stock"),
)


def finals(arms: dict[str, Any], names: tuple[str, str]) -> list[dict[str, float]]:
    """
    :param arms: Arms of a task's results.
    :param names: Names of two.
    :return: The final returns of both by seed, of equal labels if there are such; empty without.
    """
    for labels in ((label, label) for label in LABELS), (("", label) for label in LABELS):
        for pair in labels:
            found = [name + label for name, label in zip(names, pair, strict=True)]
            if all(name in arms for name in found):
                return [{seed: run["final"] for seed, run in arms[name]["seeds"].items()} for name in found]
    return [{}, {}]


def cell(ours: dict[str, float], theirs: dict[str, float]) -> str:
    """
    :param ours: Final returns by seed.
    :param theirs: The same of another arm.
    :return: The difference with its interval, bold where that leaves out 0, and seeds that were better.
    """
    found = paired(ours, theirs)
    if not found["n"]:
        return ""
    low, high = found["ci"]
    text = f"{found['iqm']:.0f} [{low:.0f}, {high:.0f}]"
    return f"{f'**{text}**' if low > 0 or high < 0 else text} {found['wins']}/{found['n']}"


def main() -> None:
    tasks = [task for task in TASKS if (RESULTS / task / "results.json").is_file()]
    lines = [f"| | {' | '.join(tasks)} |", "|---|" + "---|" * len(tasks)]
    found = {task: json.loads((RESULTS / task / "results.json").read_text(encoding="utf-8"))["envs"][task] for task in tasks}
    shares = [found[task]["arms"]["full"]["share_of_stock_steps"] for task in tasks]
    told = [f"{share:.2f}" if share is not None else "never" for share in shares]
    lines.append(f"| steps of `full` to `stock`'s final, of its own | {' | '.join(told)} |")
    for arm, against in PAIRS:
        by_task = [cell(*finals(found[task]["arms"], (arm, against))) for task in tasks]
        lines.append(f"| `{arm}` less `{against}` | {' | '.join(by_task)} |")
    (RESULTS / "parts.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
