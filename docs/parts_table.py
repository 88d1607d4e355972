"""Writes ``results/parts.md``: which part of the recommendation ends better than which control, task by task."""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TASKS = ("HalfCheetah-v5", "Walker2d-v5", "Ant-v5", "Pendulum-v1", "Swimmer-v5", "Hopper-v5")
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


def cell(contrast: dict[str, Any] | None) -> str:
    """
    :param contrast: Two arms compared on the same seeds, ``None`` if there is none.
    :return: Difference of their final returns with its interval, bold where that leaves out 0, and seeds that were better.
    """
    if contrast is None:
        return ""
    low, high = contrast["ci"]
    text = f"{contrast['iqm']:.0f} [{low:.0f}, {high:.0f}]"
    return f"{f'**{text}**' if low > 0 or high < 0 else text} {contrast['wins']}/{contrast['n']}"


def main() -> None:
    tasks = [task for task in TASKS if (RESULTS / task / "results.json").is_file()]
    lines = [f"| | {' | '.join(tasks)} |", "|---|" + "---|" * len(tasks)]
    found = {task: json.loads((RESULTS / task / "results.json").read_text(encoding="utf-8"))["envs"][task] for task in tasks}
    shares = [found[task]["arms"]["full"]["share_of_stock_steps"] for task in tasks]
    told = [f"{share:.2f}" if share is not None else "never" for share in shares]
    lines.append(f"| steps of `full` to `stock`'s final, of its own | {' | '.join(told)} |")
    for arm, against in PAIRS:
        by_task = [
            next((each for each in found[task]["contrasts"] if (each["arm"], each["against"]) == (arm, against)), None)
            for task in tasks
        ]
        lines.append(f"| `{arm}` less `{against}` | {' | '.join(map(cell, by_task))} |")
    (RESULTS / "parts.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
