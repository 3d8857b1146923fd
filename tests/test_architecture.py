"""The rules of the package: who may import whom, who knows what, and what is loaded when."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import contrastive_lvm

ROOT = Path(contrastive_lvm.__file__).parent
LAYERS = {  # a package may import packages of a lower layer, and itself
    "exceptions": 0,
    "arrays": 0,
    "_jax": 0,
    "progress": 0,
    "checks": 1,
    "linalg": 1,
    "priors": 2,
    "likelihoods": 2,
    "datasets": 2,
    "model": 3,
    "designs": 4,
    "inference": 4,
    "rows": 4,
    "draws": 4,
    "prediction": 5,
    "posterior": 5,
    "coordinate_ascent": 6,
    "io": 6,
    "black_box": 7,
    "vae": 8,
    "estimators": 9,
    "resampling": 10,
    "anndata": 11,
    "plots": 11,
    "report": 12,
    "experiments": 12,
    "app": 13,
    "cli": 14,
}
DATASETS_MAY = {"datasets", "checks", "exceptions"}
DOORS = {  # what users look for on the model itself
    "estimators/reporting.py": "report",
    "estimators/linear_fit.py": "resampling",
    "estimators/subgroups.py": "resampling",
}
LINALG_MAY = {"numpy", "scipy"}
HEAVY = ("sklearn", "scipy", "pandas", "matplotlib", "jax", "dask", "rich", "typer", "anndata")
FILES = sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


TREES = {name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in FILES}
PACKAGES = {name_of(path): package_of(path) for path in FILES}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


# --- imports ------------------------------------------------------------------------------------


def run_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only type checkers see."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield from run_nodes(child)


def imported(name: str) -> Iterator[str]:
    for node in run_nodes(TREES[name]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", TREES)
def test_imports_go_one_way(name: str) -> None:
    own = PACKAGES[name]
    others = [m.split(".")[1] for m in imported(name) if m.startswith("contrastive_lvm.")]
    for other in others if own != "__init__" else []:
        if own == "datasets":
            assert other in DATASETS_MAY, f"datasets imports {other}"
        elif other in LAYERS and other not in (own, DOORS.get(name)):
            assert LAYERS[other] < LAYERS[own], f"{own} imports {other}"


@pytest.mark.parametrize("name", [name for name in TREES if PACKAGES[name] == "linalg"])
def test_linalg_uses_numpy_and_scipy_alone(name: str) -> None:
    for module in imported(name):
        top = module.split(".")[0]
        known = top in LINALG_MAY or top == "contrastive_lvm" or top in sys.stdlib_module_names
        assert known, f"linalg imports {module}"


def test_every_package_has_a_layer() -> None:
    assert set(PACKAGES.values()) == {*LAYERS, "__init__"}


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


# --- who knows what -----------------------------------------------------------------------------

KINDS = {"ARD", "Flat", "GroupLasso", "Horseshoe"}
KINDS |= {"Gaussian", "StudentT", "Poisson", "NegativeBinomial", "Bernoulli", "Mixed"}
ABOUT_ONE_KIND = {
    "estimators/lasso_path.py": {"GroupLasso"},  # the path of that prior's strength
}


def kinds_asked_for(tree: ast.AST) -> set[str]:
    """Priors and likelihoods that code tells apart by their class."""
    asked: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            asked.append(node.args[1])
        elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
            asked += node.comparators
        elif isinstance(node, ast.MatchClass):
            asked.append(node.cls)
    parts = [part for node in asked for part in ast.walk(node)]
    names = {part.id for part in parts if isinstance(part, ast.Name)}
    return KINDS & (names | {part.attr for part in parts if isinstance(part, ast.Attribute)})


def test_no_engine_asks_for_the_kind_of_a_prior_or_likelihood() -> None:
    """What others must know of it is a method or a property of its base class."""
    found = {
        name: kinds_asked_for(tree) - ABOUT_ONE_KIND.get(name, set())
        for name, tree in TREES.items()
        if PACKAGES[name] not in ("priors", "likelihoods")
    }
    assert not {name: kinds for name, kinds in found.items() if kinds}


BELOW_ESTIMATORS = {"linalg", "rows", "priors", "likelihoods", "coordinate_ascent", "black_box"}
BELOW_ESTIMATORS |= {"model", "posterior", "prediction"}
NAMES_OF_SETS = ("target", "background")
OTHER_SENSES = "target_accept"  # of NUTS


def words(tree: ast.AST) -> Iterator[str]:
    """Identifiers and string literals, docstrings left out."""
    documented = [node for node in ast.walk(tree) if isinstance(node, DEFINITIONS)]
    docstrings = {id(node.body[0].value) for node in documented if ast.get_docstring(node)}  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield node.value
            continue
        for field in ("id", "attr", "arg", "name", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                yield value


def names_a_set(tree: ast.AST) -> bool:
    texts = (text.lower().replace(OTHER_SENSES, "") for text in words(tree))
    return any(word in text for text in texts for word in NAMES_OF_SETS)


def test_nothing_below_the_estimators_names_a_set() -> None:
    """Models have any sets; only the estimators know of a target and a background."""
    found = {
        name
        for name, tree in TREES.items()
        if PACKAGES[name] in BELOW_ESTIMATORS and names_a_set(tree)
    }
    assert not found


# --- names and sentences ------------------------------------------------------------------------


def test_no_class_name_is_defined_twice() -> None:
    nodes = [node for tree in TREES.values() for node in ast.walk(tree)]
    classes = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert [name for name, n in classes.items() if n > 1] == []


@pytest.mark.parametrize("name", TREES)
def test_docstrings_begin_with_a_verb_or_a_noun(name: str) -> None:
    for node in ast.walk(TREES[name]):
        if isinstance(node, DEFINITIONS):
            sentence = ast.get_docstring(node) or ""
            assert not sentence.startswith("Of "), sentence
