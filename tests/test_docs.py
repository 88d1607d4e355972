"""The docs say what the code does: names, commands and logged keys."""

import ast
import re
import shlex
from pathlib import Path

import pytest

import sb3_budget
from sb3_budget.bench.cli import make_parser
from sb3_budget.core.anchors import PRIORITIES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GLOSSARY = ROOT / "docs" / "misc" / "glossary.md"

#: Keys whose name is put together in the code.
COMPOSED = (
    {f"budget/{reason}_ratio" for reason in ("terminated", "time_limit", "stopped")}
    | {"budget/value_error_block_0"}
    | {f"budget/signal_{name}" for name in PRIORITIES}
)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def logged_keys() -> set[str]:
    sources = (path.read_text(encoding="utf-8") for path in Path(sb3_budget.__file__).parent.rglob("*.py"))
    return {key for source in sources for key in re.findall(r'"(budget/\w+)"', source)} | COMPOSED


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_python_on_a_page_parses_and_imports_what_exists(path):
    for code in blocks(path, "python"):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module == "sb3_budget":
                assert {alias.name for alias in node.names} <= set(sb3_budget.__all__)


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_commands_on_a_page_are_understood(path):
    for block in blocks(path, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("sb3-budget "):
                make_parser().parse_args(shlex.split(line, comments=True)[1:])


def test_the_glossary_has_every_logged_key_and_no_other():
    explained = set(re.findall(r"`(budget/\w+)`", GLOSSARY.read_text(encoding="utf-8")))
    assert explained == logged_keys()


def test_logged_keys_fit_the_console_table():
    # SB3 cuts longer ones, and refuses to print two that look the same after it.
    assert max(map(len, logged_keys())) <= 36
