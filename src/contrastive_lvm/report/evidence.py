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
    model: "Fitted", sets: Sets, *, n_resamples: int = 999, n_bootstrap: int = 0, seed: int = 0
) -> Evidence:
    """Test the contrast of two sets, and resample a fit; zero resamples leave either out."""
    reason = _untestable(model, sets)
    if reason is not None or not isinstance(model, ContrastiveLVM):
        return Evidence(not_tested(reason or "the model is not linear"))
    errors = None
    if n_bootstrap:
        errors = bootstrap(
            model,
            **_rows(sets),
            **replicates_of(sets),
            n_resamples=n_bootstrap,
            random_state=seed,
        )
    if not n_resamples:
        return Evidence(not_tested("no resamples were asked for"), errors)
    test = run_test(sets, model, n_resamples=n_resamples, seed=seed)
    return Evidence(verdict(test, int(model.n_target_)), errors)


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
