"""Is the structure real? The test of contrast in one sentence, and errors of target loadings."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.io.tables.row_columns import facts_of_rows, replicates_in
from contrastive_lvm.linalg.matrices import has_missing, is_sparse
from contrastive_lvm.report.shift import Shift, shift_of
from contrastive_lvm.resampling.contrast_test import ContrastTest, contrast_test

if TYPE_CHECKING:
    from contrastive_lvm.report.findings import Fitted
    from contrastive_lvm.resampling.bootstrap import Bootstrap

# Multiplications of a test that runs unasked: some five seconds of one core at three dimensions.
MOST_WORK = 5e10
# Resamples of a fit that run unasked, which find standard errors to 5 %, and their multiplications:
# about a second of one core. An ascent from the fit takes some hundred sweeps.
ERROR_RESAMPLES, MOST_BOOTSTRAP_WORK, ASCENT_SWEEPS = 200, 5e9, 100
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Verdict(TypedDict):
    """What a test of contrast says; without numbers if there was no test."""

    sentence: str
    level: Literal["good", "care", "note"]
    pvalue: float | None
    pvalues: list[float]  # of each dimension, given those before it
    n_target: int | None  # dimensions supported at 5 %
    method: str


class Evidence(NamedTuple):
    """What resampled rows say about a fit."""

    verdict: Verdict
    bootstrap: "Bootstrap | None" = None
    means: Shift | None = None  # None without a background

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
    n_bootstrap: int | None = None,
    seed: int = 0,
) -> Evidence:
    """Test the contrast of two sets, and resample a fit; zero resamples leave either out.

    None stands for as many resamples of the test as take a few seconds (`affordable_resamples`),
    and for refits if they take about a second (`has_cheap_errors`) and are possible.
    """
    said = judge(model, sets, n_resamples=n_resamples, shown=int(model.n_target_), seed=seed)
    evidence = Evidence(said, means=shift_of(sets, replicates_of(sets), said["pvalue"]))
    unasked = n_bootstrap is None
    n_bootstrap = ERROR_RESAMPLES * has_cheap_errors(model, sets) if unasked else n_bootstrap
    if not n_bootstrap or _untestable(model, sets) or not isinstance(model, ContrastiveLVM):
        return evidence
    try:
        found = resampled(model, sets, n_resamples=n_bootstrap, seed=seed)
        return evidence._replace(bootstrap=found)
    except InvalidParameterError as error:
        if error.parameter == "inference":  # it cannot fit weighted rows
            return evidence
        raise
    except InvalidDataError:
        if unasked:  # the summary names the option, which says why there are no errors
            return evidence
        raise


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
    own_effects = sets.preparation.covariates and model.covariate_effects == "own"
    if own_effects and sets.preparation.replicates is not None:
        return not_tested("there is no test with replicates and covariate_effects='own'")
    n_resamples = affordable_resamples(sets) if n_resamples is None else n_resamples
    if not n_resamples:
        return not_tested("the data are large; run clvm test on the same files")
    try:
        return verdict(run_test(sets, model, n_resamples=n_resamples, seed=seed), shown)
    except InvalidParameterError as error:
        if error.parameter != "likelihood":
            raise
        return not_tested(f"the likelihood {error.value!r} {error.reason.rstrip('.')}")


def affordable_resamples(sets: Sets) -> int:
    """Return how often the test resamples by default: 999 times, 99 on larger data, or never.

    A resample costs a scatter matrix of the whitened rows, some `rows * rank^2` multiplications
    for each dimension that is tested.
    """
    n_rows = sum(table.n_rows for table in sets.tables)
    return resamples_within(n_rows, sets.target.values.shape[1])


def resamples_within(n_rows: int, n_features: int) -> int:
    """Return how often so many rows are resampled by default."""
    work = n_rows * min(n_rows, n_features) ** 2
    return next((number for number in (999, 99) if number * work <= MOST_WORK), 0)


def has_cheap_errors(model: "Fitted", sets: Sets) -> bool:
    """Tell whether standard errors of the loadings take about a second.

    Scatters must suffice: complete rows, Gaussian noise, target loadings that no prior shrinks.
    """
    tables = [table for table in (sets.target, sets.background) if table is not None]
    if not has_errors(model) or any(is_sparse(t.values) or has_missing(t.values) for t in tables):
        return False
    n_rows = sum(table.n_rows for table in tables)
    rank = min(n_rows, sets.target.values.shape[1])
    sweeps = ASCENT_SWEEPS * int(model.n_target_ + model.n_shared_)
    return bool(ERROR_RESAMPLES * (n_rows + sweeps) * rank**2 <= MOST_BOOTSTRAP_WORK)


def has_errors(model: "Fitted") -> bool:
    """Tell whether a fit of Gaussian noise by EM has target loadings that can have errors."""
    if not isinstance(model, ContrastiveLVM) or not model.n_target_ or model.target_prior:
        return False
    likelihood = parse_params.likelihood(model.likelihood)
    by_em = model.inference in ("auto", "em") or isinstance(model.inference, EM)
    return by_em and likelihood._has_closed_form and not likelihood._is_scale_mixture


def resampled(model: ContrastiveLVM, sets: Sets, *, n_resamples: int, seed: int = 0) -> "Bootstrap":
    """Fit a model to resampled rows, or to resampled replicates if they are named."""
    from contrastive_lvm.resampling.bootstrap import bootstrap

    known = {name: value for name, value in facts_of_sets(sets).items() if "covariates" in name}
    return bootstrap(
        model,
        **_rows(sets),
        **replicates_of(sets),
        **known,
        n_resamples=n_resamples,
        random_state=seed,
    )


def facts_of_sets(sets: Sets) -> dict[str, Any]:
    """Return size factors and covariates of the rows of both sets as functions take them."""
    other = facts_of_rows(sets.background, sets.preparation, "background_")
    return {**facts_of_rows(sets.target, sets.preparation), **other}


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
        **facts_of_sets(sets),
        paired=len(labels) == 2 and bool(labels[0] & labels[1]),
        n_resamples=n_resamples,
        random_state=seed,
    )


def replicates_of(sets: Sets) -> dict[str, Any]:
    """Return the replicates of the rows of both sets as functions take them, if they are named."""
    column = sets.preparation.replicates
    if column is None:
        return {}
    found = replicates_in(sets.tables, column)
    return dict(zip(("groups", "background_groups"), found, strict=False))


def _rows(sets: Sets) -> dict[str, Any]:
    return dict(zip(("X", "background"), sets.frames(), strict=True))


def _untestable(model: "Fitted", sets: Sets) -> str | None:
    """Say why there is no test for a model; None if there is one."""
    if sets.background is None:
        return "there is no background to compare it with"
    if not isinstance(model, ContrastiveLVM):
        return "the test is for linear models; run clvm test on the same files"
    return None


def verdict(test: ContrastTest, shown: int | None = None) -> Verdict:
    """Say what a test found, beside a model that shows so many target dimensions."""
    supported = int(test.n_target)
    return {
        "sentence": _sentence(float(test.pvalue), supported, shown),
        "level": "good" if supported and supported >= (shown or 0) else "care",
        "pvalue": float(test.pvalue),
        "pvalues": [float(p) for p in test.pvalues],
        "n_target": supported,
        "method": test.method,
    }


def not_tested(reason: str) -> Verdict:
    """Say why there was no test."""
    sentence = f"Whether the target has structure of its own was not tested: {reason}."
    return {
        "sentence": sentence,
        "level": "note",
        "pvalue": None,
        "pvalues": [],
        "n_target": None,
        "method": "",
    }


def _sentence(pvalue: float, supported: int, shown: int | None) -> str:
    p = f"p = {rounded(pvalue)}"
    if not supported:
        sentence = f"No evidence that the target has structure of its own ({p})"
        if not shown:
            return f"{sentence}."
        which = "dimension below describes" if shown == 1 else "dimensions below describe"
        return f"{sentence}; the {which} noise."
    found = f"Target and background differ: {p}, {counted(supported)} supported"
    if shown is None or shown == supported:
        return f"{found}."
    if shown > supported:
        others = "the other describes" if shown - supported == 1 else "the others describe"
        return f"{found} of the {counted(shown, '')} below; {others} noise."
    return f"{found}, of which the model has {counted(shown, '')}."


def counted(number: int, noun: str = "dimension") -> str:
    """Return a number in words, with its noun.

    >>> counted(1), counted(2), counted(12, "row")
    ('one dimension', 'two dimensions', '12 rows')
    """
    word = NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"
    return f"{word} {noun}{'' if number == 1 else 's'}" if noun else word


def rounded(pvalue: float) -> str:
    """Return a p-value with two significant digits, as people write it.

    >>> rounded(0.001), rounded(0.4132), rounded(1.0)
    ('0.001', '0.41', '1')
    """
    return f"{pvalue:.2g}"
