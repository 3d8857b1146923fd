"""Sketches: exact likelihoods in a subspace, and the optimum over all features."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from contrastive_lvm import contrastive_model
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.rows.data import prepare
from contrastive_lvm.rows.scatter import DenseScatter, OperatorScatter
from contrastive_lvm.rows.sketch import first_sketch


def sparse_sets(seed: int = 0, *, noise: float = 1.0) -> list[sp.csr_array]:
    """Three shared and two target dimensions in rows of which two thirds are zero, off zero."""
    rng = np.random.default_rng(seed)
    S, W = rng.standard_normal((400, 3)), rng.standard_normal((400, 2))
    X = 3 * rng.standard_normal((80, 3)) @ S.T + 2 * rng.standard_normal((80, 2)) @ W.T
    B = 3 * rng.standard_normal((60, 3)) @ S.T
    sets = []
    for rows in (X, B):
        full = rows + noise * rng.standard_normal(rows.shape) + rng.standard_normal(400)
        sets.append(sp.csr_array(np.where(rng.random(rows.shape) < 0.3, full, 0.0)))
    return sets


def operators(sets: list[sp.csr_array], weights: Any = None) -> list[OperatorScatter]:
    """Return the scatters of sets as operators."""
    prepared = prepare(sets, weights=weights, span=True)
    return [rows for rows in prepared.sets if isinstance(rows, OperatorScatter)]


@pytest.mark.parametrize("most", [1, 3])
def test_the_likelihood_in_a_sketch_is_that_of_all_features(most: int) -> None:
    rng = np.random.default_rng(1)
    X, B = sparse_sets()
    weights = None if most == 1 else [rng.integers(0, most, X.shape[0]).astype(float), None]
    sources = operators([X, B], weights)
    sketch = first_sketch(sources, 5, 1, np.float64)
    basis = np.hstack(sketch.basis)
    np.testing.assert_allclose(basis.T @ basis, np.eye(sketch.size), atol=1e-12)
    L = np.vstack([rng.standard_normal((30, 5)), np.zeros((1, 5))])
    for whole, small in zip(sources, sketch.scatters(), strict=True):
        one = whole.statistics(Loadings(sketch.lift(L)), np.full(400, 0.7), whole.mean)
        two = small.statistics(Loadings(L), np.full(31, 0.7), small.mean)
        assert two.bound == pytest.approx(one.bound, rel=1e-12)
        np.testing.assert_allclose(two.moment, one.moment, rtol=1e-8)
        np.testing.assert_allclose(sketch.lift(two.cross), basis @ basis.T @ one.cross, atol=1e-7)
        assert two.square.sum() == pytest.approx(one.square.sum())


def test_loadings_in_single_precision_are_corrected_in_double() -> None:
    rng = np.random.default_rng(7)
    sources = operators(sparse_sets())
    sketch = first_sketch(sources, 5, 1, np.float32)
    assert {block.dtype for block in sketch.basis} == {np.dtype(np.float32)}
    L = sketch.lift(np.vstack([rng.standard_normal((sketch.size, 5)), np.zeros((1, 5))]))
    exact = sketch.renewed(L).extended(rng.standard_normal((400, 3)))
    np.testing.assert_allclose(exact.lift(np.vstack([exact.coordinates(L), L[:1]])), L, atol=1e-7)
    basis = np.hstack(exact.basis)
    small = np.diag([*np.ones(5), *np.full(3, 1e-6)])  # new directions only correct the others
    for rows, matrix, product in zip(sources, exact.matrices, exact.products, strict=True):
        T = rows.product(np.eye(400))
        np.testing.assert_allclose(product[0], T @ basis[:, :5], atol=1e-10 * np.abs(T).max())
        error = small @ (matrix - basis.T @ T @ basis) @ small
        assert np.abs(error).max() < 1e-12 * np.abs(T).max()


@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_rows_far_from_one_are_multiplied_in_double(size: float) -> None:
    model, engine = contrastive_model(2, 3), clvm.EM()
    sets = sparse_sets(3)
    sketched = engine._sketched(model, engine._prepare(model, [size * rows for rows in sets]))
    assert sketched.sketch is not None
    assert sketched.sketch.dtype == np.float64
    found = engine._run(model, sketched)
    plain = engine._run(model, engine._sketched(model, engine._prepare(model, sets)))
    n = sum(rows.shape[0] * rows.shape[1] for rows in sets)
    assert found.lower_bound + n * np.log(size) == pytest.approx(plain.lower_bound, abs=1e-4)


def test_products_in_single_precision_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(8)
    sets = sparse_sets(2)
    weights = rng.integers(0, 3, 80).astype(float)
    far = sp.csr_array(sets[0] + sp.csr_array(np.eye(1, 400, 5) * 300.0 * np.ones((80, 1))))
    for rows in operators([sets[1], far], [None, weights]):
        M = np.linalg.qr(rng.standard_normal((400, 4)))[0]
        expected = rows.product(M)
        for own in (rows, rows.with_columns()):
            found = own.product(M.astype(np.float32))
            assert found.dtype == np.float32
            np.testing.assert_allclose(found, expected, atol=2e-6 * np.abs(expected).max())


def test_the_step_outside_is_that_of_a_sweep_over_all_features() -> None:
    rng = np.random.default_rng(2)
    sources = operators(sparse_sets())
    sketch = first_sketch(sources, 5, 1, np.float64)
    A, psi = rng.standard_normal((30, 5)), 0.7
    slope = A @ np.linalg.inv(np.eye(5) + A.T @ A / psi) / psi
    step = sketch.step([slope, slope], np.eye(5), psi)
    lifted = sketch.lift(np.vstack([slope, np.zeros((1, 5))]))
    cross = np.sum([rows.product(lifted) for rows in sources], axis=0)
    basis = np.hstack(sketch.basis)
    outside = cross - basis @ (basis.T @ cross)
    np.testing.assert_allclose(step.gain, (outside**2).sum() / (2 * psi))


@pytest.mark.parametrize("likelihood", [clvm.Gaussian(), clvm.Gaussian(sets="own")])
@pytest.mark.parametrize("n_shared", [1, 3])
def test_fits_in_a_sketch_reach_the_optimum_over_all_features(
    likelihood: clvm.Gaussian, n_shared: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, model = clvm.EM(), contrastive_model(2, n_shared, likelihood)
    data = engine._prepare(model, sparse_sets(3))
    sketched = engine._sketched(model, data)
    assert data.sketch is None
    assert sketched.sketch is not None
    found, expected = engine._run(model, sketched), engine._run(model, data)
    assert found.converged
    assert found.lower_bound >= expected.lower_bound - 1e-5
    assert (np.diff(found.lower_bounds) >= 0).all()
    if n_shared == 3:
        for name, L in expected.loadings.items():
            np.testing.assert_allclose(found.loadings[name], L, atol=1e-3)
    again = engine._run(model, sketched, seed=1)
    assert again.lower_bound == pytest.approx(found.lower_bound, abs=1e-3)


def test_small_subspaces_reach_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    model, engine = contrastive_model(2, 3), clvm.EM()
    data = engine._sketched(model, engine._prepare(model, sparse_sets(4, noise=3.0)))
    expected = engine._run(model, data)
    monkeypatch.setattr("contrastive_lvm.coordinate_ascent.sketch_ascent.MOST_DIRECTIONS", 8)
    assert engine._run(model, data).lower_bound == pytest.approx(expected.lower_bound, abs=1e-5)


def test_a_fit_begins_in_a_sketch_where_rows_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    X, B = sparse_sets(5)
    model = clvm.ContrastiveLVM(2, n_shared="auto").fit(X, background=B)
    assert model.converged_
    monkeypatch.setattr(CoordinateAscent, "_may_sketch", lambda *_: False)
    plain = clvm.ContrastiveLVM(2, n_shared="auto").fit(X, background=B)
    assert model.shared_components_.shape == plain.shared_components_.shape
    assert model.lower_bound_ == pytest.approx(plain.lower_bound_, abs=1e-4)


def test_sparse_rows_are_not_squared_where_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    rows = sp.csr_array(np.where(rng.random((3000, 300)) < 0.2, 1.0, 0.0))
    assert isinstance(prepare([rows], span=True).sets[0], DenseScatter)
    monkeypatch.setattr("contrastive_lvm.rows.data.SLOW_SQUARE", 1e6)
    assert not isinstance(prepare([rows], span=True).sets[0], DenseScatter)
    assert isinstance(prepare([rows]).sets[0], DenseScatter)
