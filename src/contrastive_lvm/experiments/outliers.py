"""Outliers in both sets: cLVM against its robust variant (supplement, figure 3)."""

from typing import Any, NamedTuple

from matplotlib.figure import Figure

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.datasets import make_contrastive, make_outliers
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.experiments.drawing import PANEL
from contrastive_lvm.experiments.measures import displacement, procrustes
from contrastive_lvm.experiments.outcome import Claim, Outcome, paragraphs, spread, tabulate
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.plots.style import INK, PALETTE, finish, name_at, panels

SHARED, OUTLIERS = 8, 20
LITTLE = 0.1  # of the latents' spread
VARIANTS: dict[str, Any] = {
    "cLVM": Gaussian(),
    "robust, per element": StudentT(),
    "robust, per sample": StudentT(per="sample"),
}
NOTES = """
Displacements are relative to the spread of the latents, after the best rotation and scale.

The paper gives no sizes for this set; these are ours. It shows one robust variant, weights of
single entries; weights of whole rows fit these outliers better.
"""


class Pair(NamedTuple):
    """Latents of the clean rows, and of all rows when there are outliers."""

    before: Array
    after: Array
    recognised: float  # share of outliers among as many rows that the model ranks first


def run(*, quick: bool = False) -> Outcome:
    """Measure how far 20 outliers in each set move the target latents of the other rows."""
    seeds = range(1 if quick else 5)
    pairs = {
        name: [_pair(likelihood, seed) for seed in seeds] for name, likelihood in VARIANTS.items()
    }
    shift = {
        name: spread(displacement(p.before, p.after) for p in own) for name, own in pairs.items()
    }
    found = {name: spread(p.recognised for p in own) for name, own in pairs.items()}
    table = {"clean rows moved by": shift, "outliers among the 20 most outlying rows": found}
    robust = [name for name in VARIANTS if "robust" in name]
    return Outcome(
        name="outliers",
        title="Outliers",
        data=f"make_outliers: 400 + 400 rows and {OUTLIERS} outliers in each set, 50 features, "
        f"{len(seeds)} seeds",
        table=tabulate("model", table),
        claims=[
            Claim(
                "Robust cLVM recovers the latents that it finds without outliers.",
                "largest move of the clean rows",
                max(shift[name].most for name in robust),
                LITTLE,
                at_least=False,
            ),
            Claim("cLVM does not.", "least move of the clean rows", shift["cLVM"].least, LITTLE),
        ],
        figures={"latents": _draw({name: own[0] for name, own in pairs.items()})},
        notes=paragraphs(NOTES),
    )


def _pair(likelihood: Any, seed: int) -> Pair:
    clean = make_contrastive(n_shared=SHARED, random_state=seed)
    soiled = make_outliers(n_outliers=OUTLIERS, n_shared=SHARED, random_state=seed)
    model = ContrastiveLVM(2, SHARED, likelihood=likelihood, inference=EM(tol=1e-2))
    before = model.fit_transform(clean.target, background=clean.background)
    after = model.fit_transform(soiled.target, background=soiled.background)
    first = model.outliers(soiled.target).rows[:OUTLIERS]
    return Pair(before, after, float((soiled.target_labels[first] == -1).mean()))


def _draw(pairs: dict[str, Pair]) -> Figure:
    figure, axes = panels(len(pairs), 2, PANEL)
    for ax, (name, pair) in zip(axes, pairs.items(), strict=True):
        after = procrustes(pair.before, pair.after)[: len(pair.before)]
        (x, y), (u, v) = pair.before.T, after.T
        ax.scatter(x, y, s=22, facecolors="none", edgecolors=INK, linewidths=0.5)
        ax.scatter(u, v, s=7, marker="s", color=PALETTE[1], linewidths=0, alpha=0.8)
        finish(ax, name, "target dimension 1", "target dimension 2")
    # Beside the last panel, where the grid is empty.
    place: dict[str, Any] = {"transform": axes[-1].transAxes, "in_layout": False}
    name_at(axes[-1], 1.2, 0.6, "\N{WHITE CIRCLE} without outliers", INK, **place)
    name_at(axes[-1], 1.2, 0.5, "\N{BLACK SQUARE} with outliers", PALETTE[1], **place)
    return figure
