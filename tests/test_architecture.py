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
    "exceptions": 0,
    "checks": 1,
    "arrays": 0,
    "_jax": 0,
    "progress": 0,
    "linalg": 1,
    "priors": 2,
    "likelihoods": 2,
    "model": 3,
    "rows": 4,
    "prediction": 5,
    "draws": 4,
    "posterior": 5,
    "coordinate_ascent": 6,
    "io": 6,
    "black_box": 7,
    "vae": 8,
    "estimators": 9,
    "anndata": 10,
    "plots": 10,
    "report": 11,
    "experiments": 11,
    "cli": 12,
}
DOORS = {"estimators/reporting.py": "report"}  # a method users look for on the model itself
LINALG_MAY = {"numpy", "scipy"}
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


@pytest.mark.parametrize("path", sorted((ROOT / "linalg").glob("*.py")), ids=lambda p: p.name)
def test_linalg_uses_numpy_and_scipy_alone(path: Path) -> None:
    for module in imported(path):
        top = module.split(".")[0]
        known = top in LINALG_MAY or top == "contrastive_lvm" or top in sys.stdlib_module_names
        assert known, f"linalg imports {module}"


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
