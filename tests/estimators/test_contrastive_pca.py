"""ContrastivePCA against eigendecompositions written out."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.decomposition import PCA

import contrastive_lvm as clvm

DATA = clvm.datasets.make_contrastive(80, 60, n_features=9, n_shared=3, random_state=1)
X, B = DATA.target + 5.0, DATA.background - 2.0


def contrast(target: np.ndarray, background: np.ndarray, alpha: float) -> np.ndarray:
    return np.cov(target.T, bias=True) - alpha * np.cov(background.T, bias=True)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 3.0, 1000.0])
@pytest.mark.parametrize("q", [1, 2, 9])
def test_components_are_leading_eigenvectors(alpha: float, q: int) -> None:
    model = clvm.ContrastivePCA(q, alpha=alpha).fit(X, background=B)
    C = contrast(X, B, alpha)
    values = np.linalg.eigvalsh(C)[::-1][:q]
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(q), atol=1e-10)
    np.testing.assert_allclose(C @ V.T, V.T * values, atol=1e-9 * (1 + alpha))
    assert (V[np.arange(q), np.abs(V).argmax(axis=1)] > 0).all()
    np.testing.assert_array_equal(model.alphas_, [alpha])


def test_alpha_zero_is_pca_also_for_new_rows() -> None:
    model = clvm.ContrastivePCA(2, alpha=0.0).fit(X, background=B)
    pca = PCA(2).fit(X)
    ours, theirs = model.transform(B), pca.transform(B)
    np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-9)


def test_transform_repeats_the_preprocessing_of_fit() -> None:
    model = clvm.ContrastivePCA(2, alpha=1.0, scale=True).fit(X, background=B)
    pooled = np.sqrt((len(X) * X.var(axis=0) + len(B) * B.var(axis=0)) / (len(X) + len(B)))
    by_hand = (B - X.mean(axis=0)) / pooled @ model.components_.T
    np.testing.assert_allclose(model.transform(B), by_hand)
    one_by_one = np.vstack([model.transform(B[i : i + 1]) for i in range(len(B))])
    np.testing.assert_allclose(model.transform(B), one_by_one)


@pytest.mark.parametrize("alpha", [0.5, "auto"])
def test_more_features_than_rows(alpha: float | str) -> None:
    rng = np.random.default_rng(0)
    wide, background = rng.standard_normal((12, 40)), rng.standard_normal((10, 40))
    model = clvm.ContrastivePCA(2, alpha=alpha).fit(wide, background=background)
    C = contrast(wide, background, model.alpha_)
    values = np.linalg.eigvalsh(C)[::-1][:2]
    np.testing.assert_allclose(C @ model.components_.T, model.components_.T * values, atol=1e-8)


@pytest.mark.parametrize("shape", [(80, 9), (15, 60)])
def test_sparse_equals_dense(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    rows: list[Any] = [
        sp.csr_array(rng.random(shape) * (rng.random(shape) < 0.4)) for _ in range(2)
    ]
    sparse = clvm.ContrastivePCA(2).fit(rows[0], background=rows[1])
    dense = clvm.ContrastivePCA(2).fit(rows[0].toarray(), background=rows[1].toarray())
    assert sparse.alpha_ == dense.alpha_
    np.testing.assert_allclose(sparse.components_, dense.components_, atol=1e-7)
    np.testing.assert_allclose(sparse.transform(rows[0]), dense.transform(rows[0].toarray()))


@pytest.mark.parametrize("seed", range(6))
def test_automatic_alpha_finds_the_subgroups(seed: int) -> None:
    from sklearn.metrics import silhouette_score

    data = clvm.datasets.make_subgroups(random_state=seed)
    model = clvm.ContrastivePCA(2).fit(data.target, background=data.background)
    assert silhouette_score(model.transform(data.target), data.target_labels) > 0.7
    assert model.alpha_ in model.alphas_
    assert len(model.alphas_) == 4
    assert (np.diff(model.alphas_) > 0).all()
    for alpha, components in zip(model.alphas_, model.alphas_components_, strict=True):
        alone = clvm.ContrastivePCA(2, alpha=float(alpha))
        alone.fit(data.target, background=data.background)
        np.testing.assert_allclose(components, alone.components_, atol=1e-8)


def test_the_same_answer_every_time() -> None:
    first = clvm.ContrastivePCA(2).fit(X, background=B)
    second = clvm.ContrastivePCA(2).fit(X, background=B)
    np.testing.assert_array_equal(first.components_, second.components_)


def test_automatic_alpha_prefers_no_direction_in_which_nothing_varies() -> None:
    """Rounding of zero variances once had the greatest merit, in one of ten cases."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        rows, background = (rng.normal(size=(n, 3))[:, [0, 1, 2, 0]] for n in (19, 16))
        model = clvm.ContrastivePCA(1).fit(rows, background=background)
        assert np.abs(model.components_ @ [1.0, 0.0, 0.0, -1.0]).max() < 1e-6
