"""How far to believe a fit: the test of contrast, and standard errors of target loadings."""

from typing import TYPE_CHECKING, Any, NamedTuple

from contrastive_lvm.arrays import Array
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.io.tables.prepare import Sets, frame
from contrastive_lvm.io.tables.replicate_column import groups_of
from contrastive_lvm.report.verdict import Verdict, not_tested, verdict
from contrastive_lvm.resampling.bootstrap import Bootstrap, bootstrap
from contrastive_lvm.resampling.contrast_test import ContrastTest, contrast_test

if TYPE_CHECKING:
    from contrastive_lvm.report.findings import Fitted

# Multiplications of a test that runs unasked: some five seconds of one core at three dimensions.
MOST_WORK = 5e10


class Evidence(NamedTuple):
    """What resampled rows say about a fit."""

    verdict: Verdict
    bootstrap: Bootstrap | None = None

    def standard_errors(self, model: "Fitted") -> Array | None:
        """Return standard errors of the target loadings that cover, (n_target, D), or None.

        They come from resampled rows, or from draws of the posterior by NUTS. Standard deviations
        of other posteriors suppose the latents known and are too small.
        """
        if self.bootstrap is not None:
            return self.bootstrap.target_components_std
        if isinstance(model, ContrastiveLVM) and model.posterior_.draws is not None:
            return model.target_components_std_
        return None


def gather(
    model: "Fitted",
    sets: Sets,
    *,
    n_resamples: int | None = None,
    n_bootstrap: int = 0,
    seed: int = 0,
) -> Evidence:
    """Test the contrast of two sets, and resample a fit; zero resamples leave either out.

    None stands for as many resamples of the test as take a few seconds (`affordable_resamples`).
    """
    said = judge(model, sets, n_resamples=n_resamples, shown=int(model.n_target_), seed=seed)
    if not n_bootstrap or _untestable(model, sets) or not isinstance(model, ContrastiveLVM):
        return Evidence(said)
    return Evidence(said, resampled(model, sets, n_resamples=n_bootstrap, seed=seed))


def judge(
    model: "Fitted",
    sets: Sets,
    *,
    n_resamples: int | None = None,
    shown: int | None = None,
    seed: int = 0,
) -> Verdict:
    """Say whether the sets differ, beside a model that shows so many dimensions, or why not."""
    reason = _untestable(model, sets)
    if reason is not None or not isinstance(model, ContrastiveLVM):
        return not_tested(reason or "the model is not linear")
    if n_resamples == 0:
        return not_tested("no resamples were asked for")
    n_resamples = affordable_resamples(sets) if n_resamples is None else n_resamples
    if not n_resamples:
        return not_tested("the data are large; run clvm test on the same files")
    return verdict(run_test(sets, model, n_resamples=n_resamples, seed=seed), shown)


def affordable_resamples(sets: Sets) -> int:
    """Return how often the test resamples by default: 999 times, 99 on larger data, or never.

    A resample costs a scatter matrix of the whitened rows, some `rows * rank^2` multiplications
    for each dimension that is tested.
    """
    tables = [table for table in (sets.target, sets.background) if table is not None]
    n_rows = sum(table.n_rows for table in tables)
    work = n_rows * min(n_rows, sets.target.values.shape[1]) ** 2
    return next((number for number in (999, 99) if number * work <= MOST_WORK), 0)


def resampled(model: ContrastiveLVM, sets: Sets, *, n_resamples: int, seed: int = 0) -> Bootstrap:
    """Fit a model to resampled rows, or to resampled replicates if they are named."""
    return bootstrap(
        model, **_rows(sets), **replicates_of(sets), n_resamples=n_resamples, random_state=seed
    )


def run_test(
    sets: Sets, model: ContrastiveLVM | None = None, *, n_resamples: int = 999, seed: int = 0
) -> ContrastTest:
    """Test the contrast of two sets; replicates that both sets have are pairs."""
    groups = replicates_of(sets)
    labels = [set(own) for own in groups.values()]
    return contrast_test(
        **_rows(sets),
        model=model,
        **groups,
        paired=len(labels) == 2 and bool(labels[0] & labels[1]),
        n_resamples=n_resamples,
        random_state=seed,
    )


def replicates_of(sets: Sets) -> dict[str, Any]:
    """Return the replicates of the rows of both sets as functions take them, if they are named."""
    column = sets.preparation.replicates
    own = groups_of(sets.target, column)
    return own | groups_of(sets.background, column, "background_groups")


def _rows(sets: Sets) -> dict[str, Any]:
    named = sets.preparation.named
    background = None if sets.background is None else frame(sets.background, named=named)
    return {"X": frame(sets.target, named=named), "background": background}


def _untestable(model: "Fitted", sets: Sets) -> str | None:
    """Say why there is no test for a model; None if there is one."""
    if sets.background is None:
        return "there is no background to compare it with"
    if not isinstance(model, ContrastiveLVM):
        return "the test is for linear models; run clvm test on the same files"
    if not parse_params.likelihood(model.likelihood)._has_closed_form:
        return "the test is for continuous data; run clvm test on logarithms of counts"
    return None
