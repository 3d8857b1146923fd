"""Evidence for structure: the test of contrast in one sentence, and errors of target loadings."""

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError
from contrastive_lvm.io.tables.on_disk import is_on_disk
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.io.tables.row_columns import facts_of_rows, replicates_in
from contrastive_lvm.linalg.matrices import has_missing, is_sparse
from contrastive_lvm.report.findings import some_rows
from contrastive_lvm.report.shift import Shift, shift_of
from contrastive_lvm.resampling.contrast_test import ContrastTest, contrast_test
from contrastive_lvm.resampling.set_labels import TooFewWaysError

if TYPE_CHECKING:
    from contrastive_lvm.report.findings import Fitted
    from contrastive_lvm.resampling.bootstrap import Bootstrap
    from contrastive_lvm.resampling.subgroup_differences import SubgroupDifferences
    from contrastive_lvm.resampling.subgroup_stability import SubgroupStability

ERROR_RESAMPLES = 200  # by default, which give standard errors to 5%
FEWEST_REPLICATES = 4  # of a set, for standard errors that nobody asked for
MOST_WORK = 5e10  # multiplications of a test, some five seconds at three dimensions
SUBGROUP_REFITS = 50  # by default for a fit with subgroups
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Verdict(TypedDict):
    """The result of a test of contrast; without numbers if there was no test."""

    sentence: str
    level: Literal["good", "care", "note"]
    pvalue: float | None
    pvalues: list[float]  # of each dimension, given those before it
    n_target: int | None  # dimensions supported at 5 %
    method: str


class SubgroupEvidence(NamedTuple):
    """Results of fits to resampled rows about subgroups."""

    stability: "SubgroupStability"
    differences: "SubgroupDifferences"


class Evidence(NamedTuple):
    """Results of resampling about a fit."""

    verdict: Verdict
    bootstrap: "Bootstrap | None" = None
    means: Shift | None = None  # None without a background
    subgroups: SubgroupEvidence | None = None

    def standard_errors(self, model: "Fitted") -> Array | None:
        """Return standard errors of the target loadings that cover, (n_target, D), or None.

        They come from resampled rows, or from draws of the posterior by NUTS. Standard deviations
        of other posteriors treat the latents as known and are too small. Without evidence for any
        contrast there are none: the dimensions are the largest that chance made, and intervals
        about their loadings do not cover the loadings of no contrast, which are zero.
        """
        if self.verdict["n_target"] == 0:
            return None
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
    and for refits if the test supports a dimension and if they are possible and take about a
    second (`has_cheap_errors`).
    """
    said = judge(model, sets, n_resamples=n_resamples, shown=int(model.n_target_), seed=seed)
    evidence = Evidence(
        said,
        means=shift_of(sets, replicates_of(sets), said["pvalue"]),
        subgroups=_subgroup_evidence(model, sets, n_bootstrap, seed),
    )
    unasked = n_bootstrap is None
    if n_bootstrap is None:
        n_bootstrap = ERROR_RESAMPLES * (said["n_target"] != 0 and has_cheap_errors(model, sets))
    if not n_bootstrap or _untestable(model, sets) or not isinstance(model, ContrastiveLVM):
        return evidence
    try:
        found = resampled(model, sets, n_resamples=n_bootstrap, seed=seed)
        return evidence._replace(bootstrap=found)
    except InvalidParameterError as error:
        if error.parameter in ("inference", "latent_prior"):  # no fits to weighted rows
            return evidence
        if error.parameter == "n_resamples":
            raise InvalidParameterError("n_bootstrap", error.value, error.reason) from error
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
    """Say whether the sets differ, for a model with so many dimensions, or why there is no test."""
    reason = _untestable(model, sets)
    if reason is not None or not isinstance(model, ContrastiveLVM):
        return not_tested(reason or "the model is not linear")
    if n_resamples == 0:
        return not_tested("no resamples were asked for")
    own_effects = sets.preparation.covariates and model.covariate_effects == "own"
    if own_effects and sets.preparation.replicates is not None:
        return not_tested("there is no test with replicates and covariate_effects='own'")
    sets, drawn = _in_memory(sets, seed)
    n_resamples = n_resamples or _affordable(sets)
    if not n_resamples:
        return not_tested("the data are large; run clvm test on the same files")
    try:
        found = verdict(run_test(sets, model, n_resamples=n_resamples, seed=seed), shown)
    except TooFewWaysError as error:
        return not_tested(_too_few_ways(error, sets))
    except InvalidParameterError as error:
        if error.parameter != "likelihood":
            raise
        return not_tested(f"the likelihood {error.value!r} {error.reason.rstrip('.')}")
    found["sentence"] += drawn
    return found


def _in_memory(sets: Sets, seed: int) -> tuple[Sets, str]:
    """Draw rows of sets that are on disk, as many as a test of some seconds takes, and say so."""
    if sets.background is None or not any(is_on_disk(table.values) for table in sets.tables):
        return sets, ""
    most, rng = _affordable_rows(len(sets.preparation.features)) // 2, np.random.default_rng(seed)
    tables = []
    for table in sets.tables:
        rows = np.sort(rng.choice(table.n_rows, min(table.n_rows, most), replace=False))
        own = some_rows(table, rows)
        tables.append(own._replace(values=np.array(own.values)))
    numbers = " and ".join(f"{table.n_rows:,}" for table in tables)
    said = f" The test took {numbers} rows of the two sets, drawn at random."
    return sets._replace(target=tables[0], background=tables[1]), said


def _affordable_rows(n_features: int) -> int:
    """Return the rows of which 99 resamples are affordable."""
    work = MOST_WORK / 99
    return int(min(20_000, max(work / n_features**2, work ** (1 / 3))))


def _too_few_ways(error: TooFewWaysError, sets: Sets) -> str:
    column = sets.preparation.replicates
    name = error.name if column is None else f"the column {column!r}"
    return f"{name} {error.reason.rstrip('.')}"


def _affordable(sets: Sets) -> int:
    n_rows = sum(table.n_rows for table in sets.tables)
    return affordable_resamples(n_rows, len(sets.preparation.features))


def affordable_resamples(n_rows: int, n_features: int) -> int:
    """Return how often the test resamples by default: 999 times, 99 on larger data, or never.

    A resample costs a scatter matrix of the whitened rows, some `rows * rank^2` multiplications
    for each dimension that is tested.
    """
    work = n_rows * min(n_rows, n_features) ** 2
    return next((number for number in (999, 99) if number * work <= MOST_WORK), 0)


def affords_errors(n_rows: int, n_features: int, n_columns: int) -> bool:
    """Tell whether refits to resampled complete rows take about a second, 5e9 multiplications.

    An ascent from the fit takes some hundred sweeps.
    """
    work = (n_rows + 100 * n_columns) * min(n_rows, n_features) ** 2
    return ERROR_RESAMPLES * work <= 5e9


def has_cheap_errors(model: "Fitted", sets: Sets) -> bool:
    """Tell whether standard errors of the loadings take about a second.

    Scatters must suffice: complete rows, Gaussian noise, target loadings that no prior shrinks.
    """
    tables, n_columns = sets.tables, int(model.n_target_ + model.n_shared_)
    if not has_errors(model) or any(map(is_on_disk, (t.values for t in tables))):
        return False
    if any(is_sparse(t.values) or has_missing(t.values) for t in tables):
        return False
    if has_few_replicates(sets):
        return False
    n_rows = sum(table.n_rows for table in tables)
    return affords_errors(n_rows, sets.target.values.shape[1], n_columns)


def has_few_replicates(sets: Sets) -> bool:
    """Tell whether a set has two or three replicates, too few for a standard error to be read.

    A 90 % interval is then 6.3 or 2.9 standard errors to either side, in place of 1.6.
    """
    return any(pd.Series(own).nunique() < FEWEST_REPLICATES for own in replicates_of(sets).values())


def has_errors(model: "Fitted") -> bool:
    """Tell whether a fit of Gaussian noise by EM has target loadings that can have errors."""
    if not isinstance(model, ContrastiveLVM) or not model.n_target_ or model.target_prior:
        return False
    if model.n_subgroups_ > 1:  # refits are without them
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


def _subgroup_evidence(
    model: "Fitted", sets: Sets, n_refits: int | None, seed: int
) -> SubgroupEvidence | None:
    """Fit a model with subgroups to resampled rows, if it is asked for or takes some seconds."""
    if not isinstance(model, ContrastiveLVM) or model.n_subgroups_ < 2:
        return None
    n_refits = SUBGROUP_REFITS * _has_cheap_refits(model, sets) if n_refits is None else n_refits
    if n_refits < 2:
        return None
    from contrastive_lvm.resampling.subgroup_differences import differences_of, separation_of
    from contrastive_lvm.resampling.subgroup_refits import grouped_rows, subgroup_refits
    from contrastive_lvm.resampling.subgroup_stability import stability_of

    known, groups = facts_of_sets(sets), replicates_of(sets)
    rows = grouped_rows(
        model,
        sets.frames(),
        (groups.get("groups"), groups.get("background_groups")),
        (known.get("covariates"), known.get("background_covariates")),
    )
    refits = subgroup_refits(rows, n_refits, np.random.SeedSequence(seed))
    apart = separation_of(rows, np.random.default_rng(seed))
    return SubgroupEvidence(stability_of(rows, refits), differences_of(rows, apart, refits))


def _has_cheap_refits(model: ContrastiveLVM, sets: Sets) -> bool:
    """Tell whether fits with subgroups to resampled rows take some seconds: 50,000 entries."""
    dense = not any(is_sparse(t.values) or has_missing(t.values) for t in sets.tables)
    small = dense and sum(t.values.size for t in sets.tables) <= 50_000
    return small and not model._fitted().likelihood._is_scale_mixture


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
    """Describe the result of a test, for a model with so many target dimensions."""
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
        they = "it is" if supported == 1 else "they are"
        told = f"the test does not say which of the {counted(shown, '')} below {they}"
        return f"{found}; {told}."
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
