"""The public surface as a snapshot: a change here is a change for users."""

import inspect
from pathlib import Path

import contrastive_lvm as clvm

PACKAGES = ("anndata", "datasets", "designs", "plots")
SNAPSHOT = Path(__file__).parent / "public_api.txt"


def surface() -> list[str]:
    lines = []
    for home, names in (
        ("", [n for n in clvm.__all__ if n not in (*PACKAGES, "__version__")]),
        ("anndata.", clvm.anndata.__all__),
        ("datasets.", clvm.datasets.__all__),
        ("designs.", [name for name in clvm.designs.__all__ if name != "Block"]),
        ("plots.", clvm.plots.__all__),
    ):
        module = getattr(clvm, home[:-1]) if home else clvm
        for name in sorted(names):
            lines += described(f"{home}{name}", getattr(module, name))
    return lines


def signature(thing: object) -> str:
    """Names, kinds and defaults of parameters; annotations depend on NumPy's version."""
    full = inspect.signature(thing)  # type: ignore[arg-type]
    bare = [p.replace(annotation=p.empty) for p in full.parameters.values()]
    return str(full.replace(parameters=bare, return_annotation=full.empty))


def described(name: str, thing: object) -> list[str]:
    if not inspect.isclass(thing):
        return [f"{name}{signature(thing)}"]
    if issubclass(thing, Exception):
        return [f"{name}: {', '.join(base.__name__ for base in thing.__bases__)}"]
    lines = [f"{name}{signature(thing)}"]
    for attribute, value in sorted(inspect.getmembers(thing)):
        if attribute.startswith("_") or not getattr(value, "__module__", "").startswith("contrast"):
            continue
        if inspect.isfunction(value):
            lines.append(f"{name}.{attribute}{signature(value)}")
    return lines


def test_public_api_is_as_recorded() -> None:
    recorded = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    assert surface() == recorded, "run `python tests/test_public_api.py` if the change is meant"


def test_every_public_function_and_method_has_a_docstring() -> None:
    for name in clvm.__all__:
        thing = getattr(clvm, name)
        assert inspect.getdoc(thing), name


if __name__ == "__main__":
    SNAPSHOT.write_text("\n".join(surface()) + "\n", encoding="utf-8")
