"""The scikit-learn contract: common checks, pipelines, routing, grid search."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import contrastive_lvm as clvm


class SplitLVM(clvm.ContrastiveLVM):
    """Supplies the background that the common checks cannot: the later half of X."""

    def fit(self, X: Any, y: Any = None, *, background: Any = None, **sizes: Any) -> Self:
        return super().fit(X, y, background=_later_half(X) if background is None else background)


class SplitPCA(clvm.ContrastivePCA):
    """The same for ContrastivePCA."""

    def fit(self, X: Any, y: Any = None, *, background: Any = None) -> Self:
        return super().fit(X, y, background=_later_half(X) if background is None else background)


def _later_half(X: Any) -> Any:
    rows: Any = X if hasattr(X, "iloc") else np.asarray(X)
    if hasattr(X, "tocsr"):
        rows = X.tocsr()
    n = rows.shape[0] if rows.ndim else 0
    half = n // 2 if n >= 4 else 0
    return rows.iloc[half:] if hasattr(rows, "iloc") else rows[half:] if rows.ndim else rows


# Of the four features of the iris, one is described by a dimension of its own.
@pytest.mark.filterwarnings("ignore:1 of 4 features have no noise left")
@parametrize_with_checks(
    [
        SplitLVM(n_target=1, n_shared=1),
        SplitLVM(n_target=1, n_shared=1, likelihood=clvm.Gaussian("feature")),
        clvm.ContrastiveLVM(n_target=1, n_shared=0),
        clvm.PPCA(n_components=1),
        SplitPCA(n_components=1),
        SplitPCA(n_components=1, alpha=1.0, scale=True),
    ]
)
def test_common_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def data() -> clvm.datasets.ContrastiveData:
    return clvm.datasets.make_contrastive(120, 90, n_features=12, n_shared=3, random_state=0)


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("model", [clvm.ContrastiveLVM(2, 3), clvm.ContrastivePCA(2, alpha=2.0)])
def test_pipeline_scales_both_sets_alike(model: Any, data: clvm.datasets.ContrastiveData) -> None:
    pipeline = Pipeline(
        [("scale", StandardScaler()), ("model", clone(model))], transform_input=["background"]
    )
    latents = pipeline.fit_transform(data.target, background=data.background)
    scaler = StandardScaler().fit(data.target)
    by_hand = clone(model).fit_transform(
        scaler.transform(data.target), background=scaler.transform(data.background)
    )
    np.testing.assert_allclose(latents, by_hand)
    np.testing.assert_allclose(pipeline.transform(data.target), by_hand)


def test_a_background_that_the_pipeline_forgot_to_scale_is_noticed(
    data: clvm.datasets.ContrastiveData,
) -> None:
    pipeline = Pipeline([("scale", StandardScaler()), ("model", clvm.ContrastiveLVM(2, 3))])
    with pytest.warns(UserWarning, match="transform_input"):
        pipeline.fit(data.target, model__background=1000.0 * data.background)


def test_set_output_and_feature_names(data: clvm.datasets.ContrastiveData) -> None:
    target = pd.DataFrame(data.target, columns=data.feature_names)
    background = pd.DataFrame(data.background, columns=data.feature_names)
    for model in (clvm.ContrastiveLVM(2, 3), clvm.ContrastivePCA(2)):
        frame = model.set_output(transform="pandas").fit_transform(target, background=background)
        assert isinstance(frame, pd.DataFrame)
        assert list(frame.columns) == list(model.get_feature_names_out())
        assert list(frame.index) == list(target.index)
        again = model.transform(target)
        assert isinstance(again, pd.DataFrame)
        pd.testing.assert_frame_equal(again, frame)
        assert list(model.feature_names_in_) == data.feature_names


def test_clone_keeps_parameters_and_drops_the_fit(data: clvm.datasets.ContrastiveData) -> None:
    model = clvm.ContrastiveLVM(
        1, 3, likelihood=clvm.Gaussian("feature"), inference=clvm.EM(tol=1e-3)
    )
    model.fit(data.target, background=data.background)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "posterior_")


@pytest.mark.filterwarnings("ignore:The background varies")  # where n_shared is too small
@pytest.mark.usefixtures("routing")
@pytest.mark.filterwarnings("ignore:n_shared=")
def test_grid_search_finds_the_shared_dimension(data: clvm.datasets.ContrastiveData) -> None:
    search = GridSearchCV(clvm.ContrastiveLVM(2, 1), {"n_shared": [1, 3, 6]}, cv=3)
    search.fit(data.target, background=data.background)
    assert search.best_params_ == {"n_shared": 3}


@pytest.mark.usefixtures("routing")
def test_cross_validated_score_of_a_pipeline(data: clvm.datasets.ContrastiveData) -> None:
    pipeline = Pipeline(
        [("scale", StandardScaler()), ("model", clvm.ContrastiveLVM(2, 3))],
        transform_input=["background"],
    )
    scores = cross_val_score(pipeline, data.target, params={"background": data.background}, cv=3)
    assert np.isfinite(scores).all()


def test_weighted_score(data: clvm.datasets.ContrastiveData) -> None:
    model = clvm.ContrastiveLVM(2, 3).fit(data.target, background=data.background)
    weight = np.arange(len(data.target), dtype=float)
    by_hand = np.average(model.score_samples(data.target), weights=weight)
    assert model.score(data.target, sample_weight=weight) == pytest.approx(by_hand)


def test_ppca_speaks_pandas(data: clvm.datasets.ContrastiveData) -> None:
    frame = pd.DataFrame(data.target, columns=data.feature_names)
    model = clvm.PPCA(2).set_output(transform="pandas").fit(frame)
    assert list(model.transform(frame).columns) == ["ppca0", "ppca1"]
