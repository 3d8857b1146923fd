"""Lists of public names for the reference, generated from the package so that none is missing."""

import inspect
from pathlib import Path
from types import ModuleType

import contrastive_lvm
from contrastive_lvm import datasets, designs, plots

SECTIONS = {
    "estimators.md": (
        "Estimators",
        "Models with scikit-learn's interface, and what their methods return.",
        lambda home: home.startswith(("contrastive_lvm.estimators", "contrastive_lvm.draws")),
    ),
    "evidence.md": (
        "Tests, dimensions, errors",
        "Whether structure is real, how many dimensions it has, and how certain loadings are.",
        lambda home: home.startswith("contrastive_lvm.resampling"),
    ),
    "pieces.md": (
        "Likelihoods, priors, engines",
        "The parts of a model. Likelihoods, priors and engines combine freely.",
        lambda _: True,
    ),
}


def write_name_lists(folder: Path) -> None:
    """Write pages that list the public names by kind."""
    names = [n for n in contrastive_lvm.__all__ if not isinstance(_find(n), ModuleType)]
    names = [n for n in names if not n.startswith("_")]
    for page, (title, words, belongs) in SECTIONS.items():
        own = [n for n in names if belongs(inspect.getmodule(_find(n)).__name__)]
        names = [n for n in names if n not in own]
        _write(folder / page, title, words, "contrastive_lvm", own)
    functions = [name for name in designs.__all__ if name not in contrastive_lvm.__all__]
    words = inspect.getdoc(designs)
    _write(folder / "designs.md", "Designs", words, designs.__name__, functions)
    _write(folder / "plots.md", "Plots", inspect.getdoc(plots), plots.__name__, plots.__all__)
    _write(
        folder / "datasets.md",
        "Datasets",
        inspect.getdoc(datasets),
        datasets.__name__,
        datasets.__all__,
    )


def _find(name: str) -> object:
    return getattr(contrastive_lvm, name)


def _write(path: Path, title: str, words: str, module: str, names: list[str]) -> None:
    listed = "\n".join(f"   {name}" for name in sorted(names, key=str.lower))
    path.write_text(
        f"# {title}\n\n{words}\n\n```{{eval-rst}}\n.. currentmodule:: {module}\n\n"
        f".. autosummary::\n   :toctree: generated\n   :nosignatures:\n\n{listed}\n```\n"
    )
