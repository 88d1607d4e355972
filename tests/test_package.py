"""The shape of the package: its public names, what it needs, and that imports go one way."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sb3_budget

PACKAGE = Path(sb3_budget.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

#: A room may import from itself and from rooms with a smaller number.
ORDER = {"core": 0, "states": 1, "vec_env": 2, "buffers": 2, "policies": 2, "callbacks": 3, "algorithms": 4, "bench": 5}

OPTIONAL = [
    "ale_py", "cv2", "matplotlib", "minigrid", "mujoco", "optuna", "pandas", "rich", "rl_zoo3", "sb3_contrib", "scipy",
    "tensorboard", "tqdm", "yaml",
]  # fmt: skip

IMPORT_ALL = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {OPTIONAL!r}:
            raise ImportError(name + " is not installed")

sys.meta_path.insert(0, Blocker())

import sb3_budget
import sb3_budget.bench.cli

for name in sb3_budget.__all__:
    try:
        getattr(sb3_budget, name)
    except ImportError as error:
        assert "sb3-budget[" in str(error), (name, error)
print("imported")
"""


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def imported_modules(path: Path) -> Iterator[str]:
    """Absolute names of all modules that a file imports, at any depth of its code."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} has a relative import, line {node.lineno}"
            assert node.module is not None
            yield node.module


def test_public_names_are_sorted_and_importable():
    # Acronyms first, as ruff sorts.
    assert list(sb3_budget.__all__) == sorted(sb3_budget.__all__, key=lambda name: (not name.isupper(), name))
    assert len(set(sb3_budget.__all__)) == len(sb3_budget.__all__)
    for name in sb3_budget.__all__:
        assert getattr(sb3_budget, name) is not None, name


def test_unknown_names_raise_attribute_error():
    with pytest.raises(AttributeError, match="NoSuchThing"):
        sb3_budget.NoSuchThing  # noqa: B018  # the access is what is tested


def test_version_can_be_read_without_importing_the_package():
    assignments = {
        target.id: node.value
        for node in ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert ast.literal_eval(assignments["__version__"]) == sb3_budget.__version__


def test_package_says_that_it_is_typed():
    assert (PACKAGE / "py.typed").is_file()


def test_import_works_with_stable_baselines3_alone_and_names_the_extra_of_what_does_not():
    result = subprocess.run([sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["imported"]


@pytest.mark.parametrize("path", sorted((PACKAGE / "core").rglob("*.py")), ids=name_of)
def test_core_is_numpy_only(path):
    allowed = {"numpy", *sys.stdlib_module_names}
    for module in imported_modules(path):
        assert module.partition(".")[0] in allowed or module.startswith("sb3_budget.core"), module


@pytest.mark.parametrize("path", [path for path in MODULES if path.parent != PACKAGE], ids=name_of)
def test_imports_go_down_only(path):
    room = path.relative_to(PACKAGE).parts[0]
    for module in imported_modules(path):
        if module == "sb3_budget" and room == "bench":
            continue  # a user of the package, like any other
        if module.partition(".")[0] == "sb3_budget":
            other = [*module.split("."), ""][1]
            assert other in ORDER, f"imports {module}"
            assert other == room or ORDER[other] < ORDER[room], f"{room} imports {module}"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_file_is_too_long_to_read(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
