"""The import rules of the house: who may import whom, and what is loaded when."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import contrastive_lvm

ROOT = Path(contrastive_lvm.__file__).parent
LAYERS = {  # a package may import packages of a lower layer, and itself
    "core": 0,
    "sealed": 0,
    "priors": 1,
    "likelihoods": 1,
    "scale": 1,
    "model": 2,
    "inference": 3,
    "vae": 4,
    "estimators": 5,
    "anndata": 6,
    "tables": 6,
    "plots": 6,
    "report": 7,
    "experiments": 7,
    "cli": 8,
}
DOORS = {"estimators/reporting.py": "report"}  # a method users look for on the model itself
CORE_MAY = {"numpy", "scipy", "threadpoolctl"}
HEAVY = ("sklearn", "scipy", "pandas", "matplotlib", "jax", "dask", "rich", "typer", "anndata")
FILES = sorted(ROOT.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names)


def room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for module in imported(path):
        if not module.startswith("contrastive_lvm.") or own == "__init__":
            continue
        other = room(module)
        if own == "datasets":
            assert other == "datasets", f"datasets imports {module}"
        elif other == DOORS.get(path.relative_to(ROOT).as_posix()):
            continue
        elif other in LAYERS and other != own:
            assert LAYERS[other] < LAYERS[own], f"{own} imports {module}"


@pytest.mark.parametrize("path", sorted((ROOT / "core").glob("*.py")), ids=lambda p: p.name)
def test_core_uses_little_beyond_numpy(path: Path) -> None:
    for module in imported(path):
        top = module.split(".")[0]
        known = top in CORE_MAY or top == "contrastive_lvm" or top in sys.stdlib_module_names
        assert known, f"core imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_room_has_a_layer(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LAYERS or own in ("__init__", "datasets")


def test_import_is_lazy() -> None:
    code = "import sys, contrastive_lvm; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in run.stdout.split()}
    assert not loaded.intersection(HEAVY)


def test_every_public_name_resolves() -> None:
    for name in contrastive_lvm.__all__:
        assert getattr(contrastive_lvm, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = contrastive_lvm.nonsense  # type: ignore[attr-defined,unused-ignore]
