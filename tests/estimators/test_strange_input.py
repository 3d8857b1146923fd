"""Input of any kind has the right answer, or is refused in one sentence."""

import datetime as dt
import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import contrastive_lvm as clvm

RNG = np.random.default_rng(0)
X, B = RNG.normal(size=(30, 5)), RNG.normal(size=(25, 5))
WHOLE = RNG.integers(-9, 9, size=(30, 5))
HOLES = RNG.random(X.shape) < 0.15
GAPS = np.where(HOLES, np.nan, X)
ROW_METHODS = ("transform", "impute", "denoise", "reconstruct", "score_samples")


def fit(target: Any = X, background: Any = B, **data: Any) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(1, 1).fit(target, background=background, **data)


def assert_same_fit(model: clvm.ContrastiveLVM, other: clvm.ContrastiveLVM) -> None:
    np.testing.assert_array_equal(model.target_components_, other.target_components_)
    np.testing.assert_array_equal(model.background_mean_, other.background_mean_)


# Masks


def masked(values: Any, fill: Any = -999) -> Any:
    return np.ma.MaskedArray(np.where(HOLES[: len(values)], fill, values), HOLES[: len(values)])


MASKED = {
    "floats": (masked(X), GAPS),
    "single": (masked(X.astype(np.float32)), GAPS.astype(np.float32)),
    "integers": (masked(WHOLE), np.where(HOLES, np.nan, WHOLE)),
    "objects": (masked(X.astype(object), "none"), GAPS),
    "text": (masked(WHOLE.astype(str), "?"), np.where(HOLES, np.nan, WHOLE)),
    "rows": (list(masked(X)), GAPS),
    "nothing masked": (np.ma.MaskedArray(X), X),
}


@pytest.mark.parametrize("kind", MASKED)
def test_masked_entries_are_missing_entries(kind: str) -> None:
    rows, expected = MASKED[kind]
    model = fit(rows)
    assert_same_fit(model, fit(expected))
    assert_same_fit(fit(X[:20], rows), fit(X[:20], expected))
    for name in ROW_METHODS:
        method = getattr(model, name)
        np.testing.assert_array_equal(method(rows), method(expected))
    np.testing.assert_array_equal(model.latents(rows).shared, model.latents(expected).shared)
    np.testing.assert_array_equal(model.outliers(rows).rows, model.outliers(expected).rows)
    single = clvm.PPCA(1).fit(rows)
    np.testing.assert_array_equal(single.components_, clvm.PPCA(1).fit(expected).components_)


def test_contrastive_pca_refuses_masked_entries() -> None:
    with pytest.raises(ValueError, match="X contains NaN"):
        clvm.ContrastivePCA(1).fit(masked(X), background=B)


def test_masked_chunks_of_dask_are_missing_entries() -> None:
    da = pytest.importorskip("dask.array")
    model = fit(da.from_array(masked(X), chunks=(10, -1)))
    np.testing.assert_allclose(model.target_components_, fit(GAPS).target_components_, rtol=1e-6)


NETWORK: dict[str, Any] = {
    "hidden_layer_sizes": (3,),
    "max_epochs": 2,
    "random_state": 0,
    "refine_steps": 0,  # compiles as long as training
}


def test_networks_read_rows_as_the_other_estimators_do() -> None:
    model = clvm.ContrastiveVAE(1, 1, **NETWORK).fit(masked(X), background=B)
    expected = clvm.ContrastiveVAE(1, 1, **NETWORK).fit(GAPS, background=B)
    np.testing.assert_array_equal(model.transform(masked(X)), expected.transform(GAPS))
    with pytest.raises(ValueError, match=r"X has dtype datetime64\[D\]: these are not"):
        model.transform(DATES)
    with pytest.raises(ValueError, match=r"T has shape \(3, 2\), but needs finite numbers"):
        model.inverse_transform(np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"sample_weight has shape \(3,\), but there are 30 rows"):
        model.score(X, sample_weight=np.ones(3))
    with pytest.raises(ValueError, match=r"y has shape \(25, 5\).* pass background="):
        model.fit(X, B)


# Numbers of other kinds


def objects(values: Any) -> Any:
    return np.array(values, dtype=object)


SAME = {
    "matrix": (np.asmatrix(X), X),
    "list": (X.tolist(), X),
    "tuple of rows": (tuple(X), X),
    "none in a list": ([[None if v != v else v for v in row] for row in GAPS.tolist()], GAPS),
    "decimals": (objects([[Decimal(int(v)) for v in row] for row in WHOLE]), WHOLE),
    "fractions": (objects([[Fraction(int(v), 2) for v in row] for row in WHOLE]), WHOLE / 2),
    "text of numbers": (WHOLE.astype(str), WHOLE),
    "truths": (X > 0, (X > 0).astype(float)),
    "half precision": (X.astype(np.float16), X.astype(np.float16).astype(float)),
    "big-endian": (X.astype(">f8"), X),
    "unsigned": ((WHOLE + 9).astype(np.uint8), WHOLE + 9.0),
    "Int64": (
        pd.DataFrame(np.where(HOLES, np.nan, WHOLE)).astype("Int64"),
        np.where(HOLES, np.nan, WHOLE),
    ),
    "boolean": (pd.DataFrame(X > 0).astype("boolean"), (X > 0).astype(float)),
    "numbers as objects": (pd.DataFrame(WHOLE).astype({0: object}), WHOLE),
    "decimals and NA": (
        pd.DataFrame(objects([[Decimal(int(v)) if v else pd.NA for v in r] for r in WHOLE])),
        np.where(WHOLE == 0, np.nan, WHOLE),
    ),
    "fortran": (np.asfortranarray(X), X),
    "reversed": (X[::-1][::-1], X),
}


@pytest.mark.parametrize("kind", SAME)
def test_numbers_of_other_kinds(kind: str) -> None:
    rows, expected = SAME[kind]
    model, other = fit(rows), fit(np.asarray(expected, dtype=float))
    # Dimensions that vanish are rounding errors.
    np.testing.assert_allclose(
        model.target_components_, other.target_components_, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        model.transform(rows), other.transform(expected), rtol=1e-9, atol=1e-12
    )


# What is refused


class AnnDataLike:
    """What AnnData has and arrays have not."""

    def __init__(self) -> None:
        self.X, self.obs, self.shape = X, pd.DataFrame(), X.shape


def with_entry(value: Any) -> Any:
    rows = X.astype(object)
    rows[3, 2] = value
    return rows


DATES = np.datetime64("2020-01-01") + np.arange(150).reshape(30, 5)
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "generator": (lambda: (row for row in X), "is <generator.* of type generator, which is not"),
    "dict": (lambda: {"a": X[:, 0]}, r"is .* of type dict, which is not data; give an array"),
    "set": (lambda: {1.0, 2.0}, "of type set, which is not data"),
    "number": (lambda: 3.0, "is 3.0 of type float, which is not data"),
    "zero dimensions": (lambda: np.array(3.0), r"has shape \(\), but needs two dimensions"),
    "one dimension": (lambda: pd.Series(X[:, 0]), r"has shape \(30,\), but needs two"),
    "three dimensions": (lambda: [[[1.0]]], r"has shape \(1, 1, 1\), but needs two"),
    "name of a file": (lambda: "rows.csv", "is 'rows.csv' of type str.* read the file first"),
    "bytes": (lambda: b"1,2", "of type bytes, which is not data; read the file first"),
    "bytes of numbers": (lambda: WHOLE.astype("S"), "contains b'.*' of type bytes, but an entry"),
    "a number in bytes": (
        lambda: with_entry(b"1.5"),
        "contains b'1.5' of type bytes, but an entry",
    ),
    "none": (lambda: None, "is None, which is not data"),
    "complex": (lambda: X + 1j, "has dtype complex128: Complex data not supported; give real"),
    "dates": (lambda: DATES, r"has dtype datetime64\[D\]: these are not real numbers; convert"),
    "durations": (lambda: DATES - DATES[0], r"has dtype timedelta64\[D\]: these are not"),
    "dates as objects": (
        lambda: DATES.astype(object),
        "contains datetime.date.* of type date, but",
    ),
    "a date": (lambda: with_entry(np.datetime64("2020-01-01")), "of type datetime64, but an"),
    "a duration": (lambda: with_entry(np.timedelta64(3, "D")), "of type timedelta64, but an"),
    "a complex number": (lambda: with_entry(np.complex128(1j)), "of type complex128, but an"),
    "not a time": (lambda: with_entry(pd.NaT), "of type NaTType, but an entry"),
    "a list": (lambda: with_entry([1.0]), "of type list, but an entry of this argument must be"),
    "a large number": (lambda: with_entry(10**400), "contains text that is not|too large"),
    "a word": (lambda: with_entry("low"), "contains text that is not a number .*'low'"),
    "words": (lambda: np.full(X.shape, "low"), "contains text that is not a number .*'low'"),
    "column of dates": (lambda: pd.DataFrame(X).assign(d=DATES[:, 0]), r"not numeric, \['d'\]"),
    "objects that are dates": (
        lambda: (
            pd.DataFrame(X).assign(d=[dt.date(2020, 1, 1)] * 30).set_axis(list("abcdef"), axis=1)
        ),
        "of type date, but an entry",
    ),
    "bytes in a column": (
        lambda: pd.DataFrame(X).assign(d=[b"low"] * 30).set_axis(list("abcdef"), axis=1),
        "contains b'low' of type bytes, but an entry",
    ),
    "categories": (
        lambda: (
            pd.DataFrame(X).assign(d=pd.Categorical([1, 2] * 15)).set_axis(list("abcdef"), axis=1)
        ),
        r"not numeric, \['f'\]",
    ),
    "records": (lambda: np.zeros((30, 5), dtype=[("a", float)]), "these are not real numbers"),
    "ragged": (lambda: [[1.0, 2.0], [3.0]], "cannot become an array; give all rows the same"),
    "no rows": (lambda: X[:0], r"has 0 sample\(s\) \(shape=\(0, 5\)\) while a minimum"),
    "no features": (lambda: X[:, :0], r"has 0 feature\(s\) \(shape=\(30, 0\)\) while"),
    "empty list": (list, r"has shape \(0,\), but needs two dimensions"),
    "no sparse rows": (lambda: sp.csr_matrix((0, 5)), r"has 0 sample\(s\)"),
    "sparse complex": (lambda: sp.csr_matrix(X + 1j), "has dtype complex128"),
    "AnnData": (AnnDataLike, "adata.X, or use contrastive_lvm.anndata.fit"),
    "estimator": (clvm.PPCA, r"is PPCA\(\) of type PPCA, which is not data"),
}
MODELS = [
    clvm.ContrastiveLVM(1, 1),
    clvm.PPCA(1),
    clvm.ContrastivePCA(1),
    clvm.GeneralizedContrastivePCA(1),
]


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_in_one_sentence(kind: str) -> None:
    make, pattern = REFUSED[kind]
    for model in MODELS:
        alone = isinstance(model, clvm.PPCA)
        given = {} if alone else {"background": B}
        fitted = clone(model).fit(X, **given)
        calls: list[tuple[str, Callable[..., Any]]] = [
            ("X", lambda m=model, g=given: clone(m).fit(make(), **g)),
            ("X", lambda m=fitted: m.transform(make())),
        ]
        if not alone and kind != "none":
            calls.append(("background", lambda m=model: clone(m).fit(X, background=make())))
        for name, call in calls:
            with pytest.raises((TypeError, ValueError), match=f"^{name} .*{pattern}") as caught:
                call()
            message = str(caught.value)
            assert message.endswith(".")
            assert "\n" not in message


@pytest.mark.parametrize("kind", ["generator", "number", "zero dimensions", "ragged", "no rows"])
@pytest.mark.parametrize("settings", [{"n_target": "auto"}, {"groups": [0, 1] * 15}], ids=str)
def test_refused_where_rows_are_counted_first(kind: str, settings: dict[str, Any]) -> None:
    make, pattern = REFUSED[kind]
    model = clvm.ContrastiveLVM(settings.get("n_target", 1), 1)
    groups = settings.get("groups")
    with pytest.raises(ValueError, match=f"^X .*{pattern}"):
        model.fit(make(), background=B, groups=groups)
    with pytest.raises(ValueError, match=f"^background .*{pattern}"):
        model.fit(X, background=make(), groups=groups)


def test_anndata_is_refused_in_one_sentence() -> None:
    anndata = pytest.importorskip("anndata")
    for call in (fit, clvm.PPCA(1).fit, fit().transform):
        with pytest.raises(ValueError, match=r"^X is AnnData object .*adata\.X, or use") as caught:
            call(anndata.AnnData(X))
        assert "\n" not in str(caught.value)


def test_a_background_as_second_argument_is_refused() -> None:
    for model in (clvm.ContrastiveLVM(1, 0), clvm.ContrastiveLVM(1, 1), clvm.ContrastivePCA(1)):
        with pytest.raises(ValueError, match=r"y has shape \(25, 5\).* pass background="):
            model.fit(X, B)
    clvm.ContrastiveLVM(1, 0).fit(X, X[:, 0])
    clvm.ContrastiveLVM(1, 1).fit(X, X[:, :2], background=B)


WEIGHTS: dict[str, tuple[Any, str]] = {
    "short": (np.ones(3), r"has shape \(3,\), but there are 30 rows; give one number per row"),
    "table": (np.ones((30, 1)), r"has shape \(30, 1\), but there are 30 rows"),
    "number": (2.0, "is 2.0, but must be one number per row"),
    "text": ("ones", "is 'ones', but must be one number per row"),
    "complex": (np.ones(30) * 1j, ".*must be one number per row"),
    "dates": (DATES.ravel()[:30], ".*must be one number per row"),
    "dict": ({"a": 1}, "is {'a': 1}, but must be one number per row"),
    "ragged": ([[1.0], []], ".*must be one number per row"),
    "missing": (np.full(30, np.nan), "contains nan"),
    "masked": (np.ma.MaskedArray(np.ones(30), np.arange(30) == 4), "contains nan"),
    "negative": (-np.ones(30), "contains -1"),
}


@pytest.mark.parametrize("kind", WEIGHTS)
def test_wrong_weights_and_sizes_are_refused_in_one_sentence(kind: str) -> None:
    given, pattern = WEIGHTS[kind]
    counts, others = RNG.poisson(3, X.shape), RNG.poisson(3, B.shape)
    model = fit()
    calls: dict[str, Callable[[], Any]] = {
        "sample_weight": lambda: fit(sample_weight=given),
        "background_sample_weight": lambda: fit(B, X, background_sample_weight=given),
        "sample_weight ": lambda: model.score(X, sample_weight=given),
        "size_factors": lambda: clvm.ContrastiveLVM(1, 1, likelihood="poisson").fit(
            counts, background=others, size_factors=given, background_size_factors=np.ones(25)
        ),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=f"^{name.strip()} {pattern}") as caught:
            call()
        assert str(caught.value).endswith(".")


def test_weights_of_a_score() -> None:
    model = fit()
    weights = np.arange(30.0)
    expected = np.average(model.score_samples(X), weights=weights)
    np.testing.assert_allclose(model.score(X, sample_weight=weights), expected)
    with pytest.raises(ValueError, match="sample_weight is zero for all but 0"):
        model.score(X, sample_weight=np.zeros(30))


# Inputs stay as they are


def frozen(values: Any) -> Any:
    values = values.copy()
    values.flags.writeable = False
    return values


@pytest.mark.filterwarnings("ignore:The noise of the target")
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_inputs_that_cannot_be_written_are_not(likelihood: str) -> None:
    for rows in (frozen(X), frozen(GAPS), frozen(GAPS.T).T, frozen(GAPS)[::-1], frozen(WHOLE)):
        model = clvm.ContrastiveLVM(1, 1, likelihood=likelihood, inference=clvm.EM(tol=1e-2))
        once = model.fit_transform(rows, background=frozen(B))
        np.testing.assert_array_equal(once, model.transform(rows))
        for name in ROW_METHODS:
            getattr(model, name)(rows)
    sparse: Any = sp.random(30, 5, 0.5, format="csr", random_state=0)
    for part in (sparse.data, sparse.indices, sparse.indptr):
        part.flags.writeable = False
    np.testing.assert_array_equal(
        model.fit_transform(sparse, background=frozen(B)), model.transform(sparse)
    )


def test_frames_are_not_changed() -> None:
    frame = pd.DataFrame(GAPS, columns=list("abcde")).astype({"a": object, "b": "Float64"})
    before = frame.copy()
    model = fit(frame)
    for name in ROW_METHODS:
        getattr(model, name)(frame)
    pd.testing.assert_frame_equal(frame, before)


# Outliers and equal sets


@pytest.mark.parametrize("seed", range(3))
def test_outliers_with_missing_entries_do_not_rank_by_what_is_observed(seed: int) -> None:
    data = clvm.datasets.make_contrastive(300, 300, n_features=20, n_shared=3, random_state=seed)
    rng, model = np.random.default_rng(seed), clvm.ContrastiveLVM(2, 3)
    rows, others, odd = 10.0 * data.target, 10.0 * data.background, np.arange(300) < 30
    noise = np.sqrt(model.fit(rows, background=others).noise_variance_)
    rows[odd] += 2.1 * noise * rng.standard_normal((30, 20))
    rows[rng.random(rows.shape) < rng.uniform(0.0, 0.6, (300, 1))] = np.nan  # 30 % on average
    model.fit(rows, background=others)
    found = model.outliers(rows)
    rank = np.empty(300)
    rank[found.rows] = np.arange(300)
    assert roc_auc_score(odd, -model.score_samples(rows)) < 0.8
    assert roc_auc_score(odd, -rank) > 0.94
    assert (found.row_weights == 1).all()


def test_tail_probabilities_are_those_of_the_marginal() -> None:
    from scipy import stats

    from contrastive_lvm.estimators.prediction_model import tail_probabilities

    model = fit(GAPS)
    view: Any = model._fitted().view("target")
    covariance = view.L @ view.L.T + np.diag(view.psi)
    expected = []
    for row in GAPS:
        seen = ~np.isnan(row)
        r = (row - view.mean)[seen]
        distance = r @ np.linalg.solve(covariance[np.ix_(seen, seen)], r)
        expected.append(stats.chi2.logsf(distance, seen.sum()))
    np.testing.assert_allclose(tail_probabilities(view, GAPS), expected, rtol=1e-8)
    far = np.array([np.full(5, 1e3), np.full(5, 1e4), np.full(5, np.nan)])
    first, second, empty = tail_probabilities(view, far)
    assert second < first < -1000
    assert empty == 0


@pytest.mark.parametrize("rows", [X, GAPS, sp.csr_matrix(np.maximum(X, 0))], ids=type)
def test_equal_sets_are_noticed(rows: Any) -> None:
    with pytest.warns(UserWarning, match="X and background contain the same rows") as caught:
        fit(rows, rows.copy())
    assert caught[0].filename == __file__
    order = np.random.default_rng(0).permutation(rows.shape[0])
    with pytest.warns(UserWarning, match="X and background contain the same rows"):
        fit(rows, rows[order])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(rows, rows[:-1])


def test_sets_that_share_all_rows_but_one_are_not_equal() -> None:
    """Nor are sets whose rows have equal values in the first column."""
    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(len(X)), X])
    other = rows.copy()
    other[3, 2] += 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(rows, other[rng.permutation(len(X))])
        twice = np.vstack([other[:1], other[:-1]])
        fit(twice, np.vstack([other[:-1], other[1:2]]))


def test_numbers_too_large_for_counts_are_refused() -> None:
    X = np.random.default_rng(0).poisson(2.0, (12, 4)).astype(float)
    X[3, 1] = 1e200
    said = r"^X contains the value 1e\+200, which is more than 9\.00"
    with pytest.raises(ValueError, match=said):
        clvm.ContrastiveLVM(1, 1, likelihood="poisson").fit(X, background=X[:6])


def test_counts_that_hardly_vary_have_no_shares() -> None:
    X = np.rint(1e6 + np.random.default_rng(0).normal(size=(12, 4)))
    model = clvm.ContrastiveLVM(1, 1, likelihood="poisson").fit(X, background=X[:6])
    assert model.target_variance_ratio_.tolist() == [0.0]
    assert model.noise_variance_ratio_ == 0.0


def test_outliers_beside_covariates_are_refused() -> None:
    X = np.random.default_rng(0).normal(size=(12, 4))
    X[3, 1] = 1e200
    known = np.arange(12.0)[:, None] ** 2
    with pytest.raises(ValueError, match=r"squares overflow; divide all sets by a constant\.$"):
        clvm.ContrastiveLVM(1, 1).fit(
            X, background=X[4:] + 0.0, covariates=known, background_covariates=known[4:]
        )


@pytest.mark.parametrize("method", ["transform", "score_samples", "impute", "reconstruct"])
def test_a_measurement_far_out_beside_counts_is_refused(method: str) -> None:
    rng = np.random.default_rng(0)
    X, B = (
        np.column_stack([Z[:, :2], rng.poisson(3.0, (30, 2))]) for Z in rng.normal(size=(2, 30, 2))
    )
    likelihood = clvm.Mixed({"gaussian": [0, 1], "poisson": [2, 3]})
    model = clvm.ContrastiveLVM(1, 1, likelihood=likelihood, inference=clvm.EM(max_iter=400))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X, background=B)
    X[0, 0] = 1e160
    with pytest.raises(ValueError, match=r"^X contains the value 1e\+160, so far out"):
        getattr(model, method)(X)
