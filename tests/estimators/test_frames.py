"""Data frames: names travel, rows keep their labels, gaps are NaN, words are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn

import contrastive_lvm as clvm
from contrastive_lvm.arrays import NamedRows
from contrastive_lvm.estimators.input_rows import read_rows

DATA = clvm.datasets.make_contrastive(40, 30, n_features=5, n_shared=1, random_state=0)
NAMES = ["a", "b", "größe", "d", "e"]
ROWS = [f"row{i}" for i in range(40)]
X = pd.DataFrame(DATA.target, columns=NAMES, index=ROWS)
B = pd.DataFrame(DATA.background, columns=NAMES)
GAPPY = X.mask(X > 2.0)


def fit(target: Any, background: Any = B) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(1, 1).fit(target, background=background)


PLAIN = fit(GAPPY)


def same_fit(model: clvm.ContrastiveLVM, other: clvm.ContrastiveLVM = PLAIN) -> None:
    np.testing.assert_allclose(model.target_components_, other.target_components_, atol=1e-6)
    assert list(model.feature_names_in_) == NAMES


# pandas in


@pytest.mark.parametrize("kind", ["Float64", "object", "double[pyarrow]"])
def test_gaps_of_any_kind_are_missing_entries(kind: Any) -> None:
    frame: Any = GAPPY.astype(kind)
    if kind == "object":
        frame = frame.where(frame.notna(), pd.NA)
    same_fit(fit(frame, B.astype(kind)))
    np.testing.assert_allclose(PLAIN.transform(frame), PLAIN.transform(GAPPY))


def test_whole_numbers_and_truths_are_numbers() -> None:
    frame = X.round().assign(d=X["d"] > 0)
    wide = fit(frame.astype(float))
    same_fit(fit(frame.astype({"a": int, "b": "Int64", "d": "boolean"})), wide)
    frame = frame.astype({"b": "Int64", "d": "boolean"})
    frame.loc["row0", ["b", "d"]] = pd.NA
    same_fit(fit(frame), fit(frame.astype({"b": "Float64", "d": "Float64"}).astype(float)))


def test_sparse_frames_stay_sparse_where_they_hold_zeros() -> None:
    rare, others = X.where(X > 1, 0.0), B.where(B > 1, 0.0)
    expected = fit(rare, others)
    narrow = [frame.astype(pd.SparseDtype(float, 0.0)) for frame in (rare, others)]
    assert sp.issparse(read_rows(expected, narrow[0]))
    assert sp.issparse(read_rows(expected, narrow[1], name="background"))
    same_fit(fit(*narrow), expected)
    same_fit(fit(GAPPY.astype(pd.SparseDtype(float)), B))  # what is not stored is missing
    half = rare.astype({"a": pd.SparseDtype(float, 0.0)})
    same_fit(fit(half, others), expected)


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "categories": (
        lambda: fit(X.assign(sex=pd.Categorical([1, 2] * 20))),
        ValueError,
        r"X has columns that are not numeric, \['sex'\]; drop or encode them",
    ),
    "words": (
        lambda: fit(X, B.assign(d="low")),
        ValueError,
        r"background (has columns that are not numeric, \['d'\]|contains text.*'low')",
    ),
    "dates": (lambda: fit(X.assign(a=pd.Timestamp(0))), ValueError, r"not numeric, \['a'\]"),
    "durations": (lambda: fit(X.assign(a=pd.Timedelta(1))), ValueError, r"not numeric, \['a'\]"),
    "complex": (lambda: fit(X.assign(a=X["a"] + 1j)), ValueError, r"not numeric, \['a'\]"),
    "twice": (
        lambda: fit(X.set_axis(list("aabcd"), axis=1), B.set_axis(list("aabcd"), axis=1)),
        ValueError,
        r"X has more than one column of the name \['a'\]; name every feature once",
    ),
    "order": (
        lambda: fit(X, B[NAMES[::-1]]),
        ValueError,
        r"background has the features of X in another order; pass background\[X\.columns\]",
    ),
    "names": (
        lambda: fit(X, B.rename(columns={"a": "z"})),
        ValueError,
        r"only X has \['a'\], only background has \['z'\]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_frames_are_refused_in_one_sentence(case: str) -> None:
    call, kind, pattern = REFUSED[case]
    with pytest.raises(kind, match=pattern) as caught:
        call()
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message
    assert ". " not in message


def test_other_columns_are_refused_after_a_fit() -> None:
    for other in (X[NAMES[::-1]], X.rename(columns={"a": "z"})):
        for call in (PLAIN.transform, PLAIN.impute, PLAIN.score_samples):
            with pytest.raises(ValueError, match="feature names"):
                call(other)


# Frames out


@pytest.mark.parametrize("model", [clvm.ContrastiveLVM(1, 1), clvm.PPCA(1)], ids=repr)
def test_pandas_out_keeps_rows_and_columns(model: Any) -> None:
    given = {} if isinstance(model, clvm.PPCA) else {"background": B}
    arrays = sklearn.clone(model).fit(GAPPY, **given)
    model = sklearn.clone(model).set_output(transform="pandas").fit(GAPPY, **given)
    latents = model.transform(GAPPY)
    assert list(latents.index) == ROWS
    assert list(latents.columns) == list(model.get_feature_names_out())
    for name in ("impute", "denoise", "reconstruct"):
        if hasattr(model, name):
            frame = getattr(model, name)(GAPPY)
            pd.testing.assert_frame_equal(
                frame, pd.DataFrame(getattr(arrays, name)(GAPPY), ROWS, NAMES)
            )
    filled, std = model.impute(X=GAPPY, return_std=True)
    assert list(std.index) == list(filled.index) == ROWS
    assert (std.to_numpy()[GAPPY.notna()] == 0).all()
    assert list(model.inverse_transform(latents).index) == ROWS
    drawn = model.sample(n_samples=3, random_state=0)
    assert list(drawn.columns) == NAMES
    assert len(drawn) == 3
    assert isinstance(model.score_samples(GAPPY), np.ndarray)  # as in scikit-learn


def test_arrays_stay_arrays_unless_asked() -> None:
    for name in ("transform", "impute", "denoise", "reconstruct"):
        assert type(getattr(PLAIN, name)(GAPPY)) is np.ndarray
    nameless: Any = clvm.ContrastiveLVM(1, 1).fit(DATA.target, background=DATA.background)
    with sklearn.config_context(transform_output="pandas"):
        assert list(nameless.impute(DATA.target).columns) == ["x0", "x1", "x2", "x3", "x4"]


def test_pictures_and_leakage_take_models_that_give_frames() -> None:
    hidden = np.zeros(X.shape, dtype=bool)
    hidden[:9, 2] = True
    with sklearn.config_context(transform_output="pandas"):
        model = fit(X)
        ax = clvm.plots.plot_imputation(model, X, hidden)
        assert np.isfinite(clvm.leakage(model, X, B, n_neighbors=5).set_auc)
    assert ax.get_xlabel() == "true value, standard deviations"


def test_names_reach_loadings_and_files(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        PLAIN.target_components_.T, PLAIN.feature_names_in_, PLAIN.get_feature_names_out()
    )
    assert frame.loc["größe", "contrastivelvm0"] == PLAIN.target_components_[0, 2]
    PLAIN.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm").set_output(transform="pandas")
    assert list(again.impute(GAPPY).columns) == NAMES
    with pytest.raises(ValueError, match="feature names"):
        again.transform(X[NAMES[::-1]])


# Sparse rows with names


def test_sparse_rows_may_have_names() -> None:
    rare, others = X.where(X > 1, 0.0), B.where(B > 1, 0.0)
    groups = clvm.GroupLasso(0.1, groups={"g": ["a", "größe"]})
    rows = [NamedRows(sp.csr_array(f.to_numpy()), NAMES) for f in (rare, others)]
    model = clvm.ContrastiveLVM(1, 1, target_prior=groups).fit(rows[0], background=rows[1])
    other = clvm.ContrastiveLVM(1, 1, target_prior=groups).fit(rare, background=others)
    same_fit(model, other)
    np.testing.assert_allclose(model.transform(rows[0]), other.transform(rare), atol=1e-6)
    with pytest.raises(ValueError, match=r"feature names"):
        model.transform(NamedRows(rows[0].values, ["z", *NAMES[1:]]))
    with pytest.raises(ValueError, match="feature names"):
        model.transform(NamedRows(rows[0].values[:, :2], NAMES[:2]))
