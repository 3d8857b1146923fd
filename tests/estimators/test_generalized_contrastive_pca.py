"""GeneralizedContrastivePCA against its definition, and against numbers of its authors' package."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

import contrastive_lvm as clvm

DATA = clvm.datasets.make_contrastive(80, 60, n_features=9, n_shared=3, random_state=1)
X, B = DATA.target + 5.0, DATA.background * np.linspace(0.5, 2.0, 9) - 2.0

ROW, COLUMN = np.arange(12)[:, None], np.arange(4)[None]
TARGET = np.sin(1.0 + ROW * (COLUMN + 1) ** 1.3) * (COLUMN + 1) + np.cos(ROW / 2.0) * COLUMN
BACKGROUND = np.cos(2.0 + ROW[:10] * (COLUMN + 2) ** 1.1) * (4 - COLUMN)
FIRST = [-0.400187716183, 0.266119595826, 0.662052842834, 0.575079286558]
PACKAGE = {  # generalized_contrastive_PCA 1.0.2 on these rows
    ("v1", False): [
        [-0.132910392591, 0.49241694903, 0.628003602554, 0.587768535248],
        [0.857010321772, 0.448357880291, -0.242086390229, 0.076829025918],
    ],
    **{
        (method, False): [FIRST, [0.854923466055, 0.45298898478, -0.240689626079, 0.077300392973]]
        for method in ("v2", "v3", "v4")
    },
    **{
        (method, True): [FIRST, [0.787922181775, 0.581722275097, 0.082240005932, 0.184429963798]]
        for method in ("v2", "v3", "v4")
    },
}


def standardised(rows: np.ndarray) -> np.ndarray:
    return np.asarray((rows - rows.mean(axis=0)) / rows.std(axis=0))


def covariances(*, scale: bool = True) -> tuple[np.ndarray, np.ndarray]:
    first, second = (standardised(rows) if scale else rows for rows in (X, B))
    return np.cov(first.T), np.cov(second.T)


def numerator_and_denominator(method: str, A: np.ndarray, C: np.ndarray) -> Any:
    return {"v2": (A, C), "v3": (A - C, C), "v4": (A - C, A + C)}[method]


@pytest.mark.parametrize(("method", "orthogonal"), PACKAGE)
def test_components_are_those_of_the_authors(method: str, orthogonal: bool) -> None:  # noqa: FBT001
    model = clvm.GeneralizedContrastivePCA(2, method=method, orthogonal=orthogonal)
    model.fit(TARGET, background=BACKGROUND)
    np.testing.assert_allclose(model.components_, PACKAGE[method, orthogonal], atol=1e-11)


@pytest.mark.parametrize("method", ["v2", "v3", "v4"])
@pytest.mark.parametrize("scale", [True, False])
def test_components_solve_the_generalised_eigenproblem(method: str, scale: bool) -> None:  # noqa: FBT001
    model = clvm.GeneralizedContrastivePCA(9, method=method, scale=scale).fit(X, background=B)
    N, D = numerator_and_denominator(method, *covariances(scale=scale))
    V = model.components_.T
    np.testing.assert_allclose(np.linalg.norm(V, axis=0), 1.0)
    assert (np.diff(scipy.linalg.eigh(N, D)[0]) > 0).all()
    values = np.diagonal(V.T @ N @ V) / np.diagonal(V.T @ D @ V)
    np.testing.assert_allclose(values, scipy.linalg.eigh(N, D)[0][::-1], rtol=1e-9)
    np.testing.assert_allclose(N @ V, D @ V * values, atol=1e-9)


@pytest.mark.parametrize("method", ["v2", "v3", "v4"])
def test_values_are_the_objective_of_standardised_rows(method: str) -> None:
    model = clvm.GeneralizedContrastivePCA(3, method=method, orthogonal=True)
    model.fit(X, background=B)
    V = model.components_.T
    a, b = (np.var(standardised(rows) @ V, axis=0) for rows in (X, B))
    expected = {"v2": a / b, "v3": (a - b) / b, "v4": (a - b) / (a + b)}[method]
    np.testing.assert_allclose(model.objective_values_, expected)


@pytest.mark.parametrize("q", [1, 4, 9])
def test_orthogonal_components_are_orthogonal_and_nested(q: int) -> None:
    model = clvm.GeneralizedContrastivePCA(q, orthogonal=True).fit(X, background=B)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(q), atol=1e-10)
    everything = clvm.GeneralizedContrastivePCA(9, orthogonal=True).fit(X, background=B)
    np.testing.assert_allclose(model.components_, everything.components_[:q], atol=1e-9)
    assert (np.diff(everything.objective_values_) < 0).all()


def test_first_version_is_contrastive_pca_with_weight_one() -> None:
    ours = clvm.GeneralizedContrastivePCA(2, method="v1", scale=False).fit(X, background=B)
    n, m = len(X), len(B)
    A, C = covariances(scale=False)
    values = np.linalg.eigvalsh(A - C)[::-1][:2]
    np.testing.assert_allclose(ours.objective_values_, values)
    alpha = (m / (m - 1)) / (n / (n - 1))  # ContrastivePCA divides by the number of rows
    theirs = clvm.ContrastivePCA(2, alpha=alpha).fit(X, background=B)
    np.testing.assert_allclose(ours.components_, theirs.components_, atol=1e-9)


def test_transform_projects_standardised_rows_of_the_target() -> None:
    model = clvm.GeneralizedContrastivePCA(2).fit(X, background=B)
    np.testing.assert_allclose(model.transform(X), standardised(X) @ model.components_.T)
    np.testing.assert_allclose(model.fit_transform(X, background=B), model.transform(X))


@pytest.mark.parametrize("shape", [(80, 9), (15, 60)])
def test_sparse_and_out_of_core_equal_dense(shape: tuple[int, int], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal(shape) * (rng.random(shape) < 0.7) for _ in range(2)]
    dense = clvm.GeneralizedContrastivePCA(2).fit(rows[0], background=rows[1])
    sparse = clvm.GeneralizedContrastivePCA(2)
    sparse.fit(sp.csr_matrix(rows[0]), background=sp.csr_matrix(rows[1]))
    np.testing.assert_allclose(sparse.components_, dense.components_, atol=1e-9)
    np.save(tmp_path / "rows.npy", rows[0])
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    streamed = clvm.GeneralizedContrastivePCA(2).fit(mapped, background=rows[1])
    np.testing.assert_allclose(streamed.components_, dense.components_, atol=1e-9)


def test_features_that_do_not_vary_and_collinear_ones_have_an_answer() -> None:
    rows, background = X.copy(), B.copy()
    rows[:, 0] = 3.0
    rows[:, 2], background[:, 2] = 2.0 * rows[:, 1], 2.0 * background[:, 1]
    model = clvm.GeneralizedContrastivePCA(2).fit(rows, background=background)
    assert np.isfinite(model.transform(rows)).all()
    with pytest.raises(ValueError, match="n_components=9 must be at most 8"):
        clvm.GeneralizedContrastivePCA(9).fit(rows, background=background)


@pytest.mark.parametrize("method", ["v2", "v3", "v4"])
@pytest.mark.parametrize("orthogonal", [False, True])
def test_a_set_that_does_not_vary_is_refused(method: str, orthogonal: bool) -> None:  # noqa: FBT001
    model = clvm.GeneralizedContrastivePCA(2, method=method, orthogonal=orthogonal)
    with pytest.raises(ValueError, match="background does not vary, so all directions have"):
        model.fit(X, background=np.full_like(B, 3.0))
    with pytest.raises(ValueError, match="X does not vary, so all directions have the same"):
        model.fit(np.full_like(X, 3.0), background=B)


@pytest.mark.parametrize("method", ["v2", "v3", "v4"])
def test_objectives_are_finite_where_the_background_varies_in_one_direction(method: str) -> None:
    flat = B * (np.arange(9) == 0)
    model = clvm.GeneralizedContrastivePCA(2, method=method, scale=False)
    model.fit(3.0 * X, background=flat)
    assert np.isfinite(model.objective_values_).all()


@pytest.mark.parametrize("kind", [clvm.ContrastivePCA, clvm.GeneralizedContrastivePCA])
def test_large_rows(kind: Any) -> None:
    model = kind(2).fit(1e-3 * X, background=1e-3 * B)
    with pytest.raises(ValueError, match="X contains values that overflow when they are projected"):
        model.transform(1.7e308 * np.sign(model.components_))
    large = kind(2).fit(1e100 * X, background=1e100 * B)  # squares of variances overflow
    np.testing.assert_allclose(large.components_, model.components_, atol=1e-6)


@pytest.mark.parametrize("kind", [clvm.ContrastivePCA, clvm.GeneralizedContrastivePCA])
def test_several_backgrounds_are_weighed_equally(kind: Any) -> None:
    model = kind(2, alpha=1.3) if kind is clvm.ContrastivePCA else kind(2, scale=False)
    other = DATA.background[:30] @ np.diag(np.arange(1.0, 10.0))
    model.fit(X, background={"healthy": B, "batch": other})
    correction = 0 if kind is clvm.ContrastivePCA else 1
    A, first, second = (np.cov(rows.T, ddof=correction) for rows in (X, B, other))
    C = (first + second) / 2.0
    if kind is clvm.ContrastivePCA:
        V = np.linalg.eigh(A - 1.3 * C)[1]
    else:
        V = scipy.linalg.eigh(A - C, A + C)[1]
    V = V[:, ::-1][:, :2] / np.linalg.norm(V[:, ::-1][:, :2], axis=0)
    np.testing.assert_allclose(np.abs(model.components_ @ V).diagonal(), 1.0)
    assert model.n_background_samples_ == len(B) + 30


def test_bad_parameters_are_refused_in_a_sentence() -> None:
    with pytest.raises(ValueError, match="method='v5'"):
        clvm.GeneralizedContrastivePCA(method="v5").fit(X, background=B)
    with pytest.raises(ValueError, match="background=None, but GeneralizedContrastivePCA"):
        clvm.GeneralizedContrastivePCA().fit(X)
    with pytest.raises(ValueError, match="background has 8 features, but X has 9"):
        clvm.GeneralizedContrastivePCA().fit(X, background={"one": B, "two": B[:, :8]})


def test_a_model_file_has_all_of_it(tmp_path: Path) -> None:
    model = clvm.GeneralizedContrastivePCA(2, method="v3", orthogonal=True).fit(X, background=B)
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    assert repr(again) == repr(model)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    np.testing.assert_array_equal(again.objective_values_, model.objective_values_)
