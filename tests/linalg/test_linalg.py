"""The core's pieces one by one, against NumPy's dense linear algebra."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from contrastive_lvm.coordinate_ascent.spectral import leading_eigenpairs
from hypothesis import given, settings

from contrastive_lvm.coordinate_ascent.loading_step import loading_step
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.anderson import _bold_weights, _steady_weights, ascend
from contrastive_lvm.linalg.gauge import canonical, canonical_rotation
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.linalg.matrices import make_block, patterns_of, row_slices
from contrastive_lvm.rows import data
from contrastive_lvm.rows.masked_rows import prepare, residual_of, row_step
from contrastive_lvm.rows.scale_mixture_rows import ScaleMixtureRows
from tests.oracles import (
    GAPS,
    Array,
    conditional,
    gapped,
    joint_update,
    log_densities,
    planted,
    sides,
)

relaxed = settings(deadline=None)  # machines differ

# --- packed symmetric matrices ------------------------------------------------------------------


def stack(K: int, P: int, seed: int = 0) -> tuple[Array, Array]:
    """P positive definite matrices, (P, K, K), and packed, (Q, P)."""
    A = np.random.default_rng(seed).standard_normal((P, K, K + 2))
    dense = A @ A.transpose(0, 2, 1) + 0.1 * np.eye(K)
    rows, columns = np.tril_indices(K)
    return dense, np.ascontiguousarray(dense[:, rows, columns].T)


SIZES = [(0, 3), (1, 1), (1, 5), (2, 1), (3, 7), (12, 4), (30, 2)]


@pytest.mark.parametrize(("K", "P"), SIZES)
def test_packed_inverse_and_determinant(K: int, P: int) -> None:
    dense, columns = stack(K, P)
    before = columns.copy()
    inverse, logdet = packed.invert(columns)
    np.testing.assert_array_equal(columns, before)
    assert packed.size_of(columns) == K
    np.testing.assert_allclose(packed.unpack(inverse), np.linalg.inv(dense), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(logdet, np.linalg.slogdet(dense)[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("K", "P"), SIZES)
def test_packed_round_trip_and_products(K: int, P: int) -> None:
    dense, columns = stack(K, P)
    rng = np.random.default_rng(1)
    np.testing.assert_array_equal(packed.unpack(columns), np.tril(dense) + _upper(dense))
    vectors = rng.standard_normal((K, P))
    expected = np.array([A @ v for A, v in zip(dense, vectors.T, strict=True)]).T
    np.testing.assert_allclose(packed.multiply(columns, vectors), expected.reshape(K, P))
    np.testing.assert_array_equal(packed.pack(dense[0])[:, 0], columns[:, 0])
    rows, scale = rng.standard_normal((P, K)), rng.uniform(1.0, 2.0, P)
    outer = np.einsum("p,pi,pj->pij", scale, rows, rows)
    np.testing.assert_allclose(packed.unpack(packed.pack_products(rows, scale)), outer)


def _upper(dense: Array) -> Array:
    return np.tril(dense, -1).transpose(0, 2, 1)


# --- blocks and patterns ------------------------------------------------------------------------


@relaxed
@given(
    st.integers(1, 20).flatmap(
        lambda D: st.lists(st.lists(st.booleans(), min_size=D, max_size=D), min_size=1, max_size=30)
    )
)
def test_patterns_are_the_distinct_rows(rows: list[list[bool]]) -> None:
    mask = np.array(rows)
    representative, pattern = patterns_of(mask)
    assert pattern.shape == (len(mask),)
    assert len(representative) == len({tuple(row) for row in rows})
    np.testing.assert_array_equal(mask[representative][pattern], mask)
    np.testing.assert_array_equal(pattern[representative], np.arange(len(representative)))


@relaxed
@given(st.integers(0, 5000), st.integers(0, 300), st.integers(1, 2000))
def test_slices_cover_all_rows_once(n: int, D: int, elements: int) -> None:
    pieces = [range(n)[rows] for rows in row_slices(n, D, elements=elements)]
    assert [i for piece in pieces for i in piece] == list(range(n))
    assert all(len(piece) * D <= elements or len(piece) == 1 for piece in pieces)


# --- row step, statistics, loading step ---------------------------------------------------------


@pytest.mark.parametrize("order", ["as drawn", "reversed", "one pattern each"])
@pytest.mark.parametrize("noise", ["isotropic", "feature"])
def test_row_step_is_the_conditional_normal(noise: str, order: str) -> None:
    """Rows in any order, with patterns shared by several rows or each its own."""
    point, X, B = planted(4, n=12, D=6, noise=noise)
    X = gapped(X, B, "target")[0]
    if order == "one pattern each":
        X = X[::-1][np.sort(np.unique(np.isnan(X[::-1]), axis=0, return_index=True)[1])]
    X = X[::-1] if order == "reversed" else X
    side = sides(point)[0]
    block = make_block(X)
    step = row_step(prepare(Loadings(side.L), side.psi), residual_of(block, side.mean), block)
    for i, x in enumerate(X):
        expected = conditional(side, x)
        np.testing.assert_allclose(step.mean[:, i], expected.mean, atol=1e-9)
        cov = packed.unpack(step.cov)[block.pattern[i]]
        np.testing.assert_allclose(cov, expected.cov, atol=1e-9)
    np.testing.assert_allclose(step.log_likelihood, log_densities(side, X), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("gaps", GAPS)
@pytest.mark.parametrize("noise", ["isotropic", "feature"])
@pytest.mark.parametrize(("k", "t"), [(2, 1), (1, 3), (0, 2), (2, 0)])
def test_loading_step_is_the_brute_force_m_step(k: int, t: int, noise: str, gaps: str) -> None:
    point, X, B = planted(5, n=30, m=25, D=7, k=k, t=t, noise=noise)
    X, B = gapped(X, B, gaps)
    if not np.isnan(X).any():  # complete rows are always taken about their sample mean
        point = point._replace(mean=X.mean(axis=0))
    if not np.isnan(B).any():
        point = point._replace(background_mean=B.mean(axis=0))
    L = np.hstack([point.S, point.W])
    sets = []
    for rows, mean, loadings in ((X, point.mean, L), (B, point.background_mean, point.S)):
        (compressed,) = data.prepare([rows]).sets
        assert not isinstance(compressed, ScaleMixtureRows)
        sets.append(compressed.statistics(Loadings(loadings), point.psi, mean))
    step = loading_step(sets, k + t, point.psi, np.zeros((1, k + t)), np.arange(0))
    expected = joint_update(point, X, B, isotropic=False)
    np.testing.assert_allclose(step.loadings.mean, np.hstack([expected.S, expected.W]), atol=1e-9)
    np.testing.assert_allclose(step.square / step.entries, expected.psi, rtol=1e-8)
    np.testing.assert_allclose(point.mean + step.mean_change[0], expected.mean, atol=1e-9)
    changed = point.background_mean + step.mean_change[1]
    np.testing.assert_allclose(changed, expected.background_mean, atol=1e-9)


# --- gauge --------------------------------------------------------------------------------------

blocks = st.tuples(st.integers(1, 12), st.integers(1, 5), st.integers(0, 2**32 - 1)).map(
    lambda drawn: np.random.default_rng(drawn[2]).standard_normal((drawn[0] + drawn[1], drawn[1]))
)


@relaxed
@given(blocks, st.floats(1e-6, 1e6))
def test_canonical_loadings_keep_the_covariance(block: Array, scale: float) -> None:
    block = scale * block
    turned = canonical(block)
    assert turned.shape == block.shape
    product = block @ block.T
    np.testing.assert_allclose(turned @ turned.T, product, atol=1e-10 * np.abs(product).max())
    gram = turned.T @ turned
    sizes = np.diag(gram)
    np.testing.assert_allclose(gram, np.diag(sizes), atol=1e-10 * sizes.max())
    assert (np.diff(sizes) <= 1e-12 * sizes.max()).all()
    assert (turned.max(axis=0) >= (1.0 - 2e-6) * -turned.min(axis=0)).all()


@relaxed
@given(blocks, st.integers(0, 2**32 - 1))
def test_canonical_loadings_do_not_depend_on_rotation(block: Array, seed: int) -> None:
    K = block.shape[1]
    sizes = np.linalg.svd(block, compute_uv=False)
    if K > 1 and (-np.diff(sizes)).min() < 1e-2 * sizes[0]:
        return  # equal variances leave the rotation free
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((K, K)))[0]
    expected = canonical(block)
    largest = np.sort(np.abs(expected), axis=0)[-2:]
    if ((largest[1] - largest[0]) < 1e-4 * largest[1]).any():
        return  # a near tie of the largest loadings, tested by itself
    np.testing.assert_allclose(canonical(block @ Q), expected, atol=1e-8 * sizes[0])


@pytest.mark.parametrize("wobble", [0.0, 1e-9, -1e-9])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_first_of_tied_largest_loadings_is_positive(wobble: float, sign: float) -> None:
    column = sign * np.array([[0.5], [-2.0], [2.0 + wobble], [1.0]])
    np.testing.assert_allclose(canonical(column), [[-0.5], [2.0], [-2.0], [-1.0]], atol=1e-8)


def test_canonical_of_empty_and_zero_blocks_and_of_columns_of_their_own() -> None:
    assert canonical(np.empty((4, 0))).shape == (4, 0)
    np.testing.assert_array_equal(canonical(np.zeros((4, 2))), np.zeros((4, 2)))
    L = np.random.default_rng(0).standard_normal((6, 5))
    kept = L @ canonical_rotation(L, keep_columns=True)
    order = np.argsort(-(L**2).sum(axis=0))
    np.testing.assert_allclose(np.abs(kept), np.abs(L[:, order]))
    assert (kept[np.abs(kept).argmax(axis=0), np.arange(5)] > 0).all()


# --- ascent -------------------------------------------------------------------------------------


def quadratic(D: int, seed: int) -> tuple[Any, Any, Array]:
    """A concave quadratic, its slow gradient map (a contraction), and its maximum."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    A, top = Q @ np.diag(np.geomspace(0.002, 1.0, D)) @ Q.T, rng.standard_normal(D)

    def evaluate(x: Array, carry: int) -> tuple[float, Array]:
        gradient = A @ (top - x)
        return float(-0.5 * (top - x) @ gradient), gradient

    def improve(x: Array, gradient: Array) -> tuple[Array, int]:
        return x + gradient, 0

    return evaluate, improve, top


@pytest.mark.parametrize("seed", range(4))
def test_acceleration_is_monotone_and_faster_on_a_contraction(seed: int) -> None:
    evaluate, improve, top = quadratic(10, seed)
    plain, fast, steady = (
        ascend(
            evaluate,
            improve,
            np.zeros(10),
            0,
            memory=memory,
            max_sweeps=50_000,
            tol=1e-12,
            steady=steady,
        )
        for memory, steady in ((0, 0), (12, 0), (12, 30))
    )
    for run in (plain, fast, steady):
        assert run.converged
        assert (np.diff(run.trace) >= 0).all()
        assert run.trace[-1] == evaluate(run.point, 0)[0]
        np.testing.assert_array_equal(run.info, evaluate(run.point, 0)[1])
    np.testing.assert_allclose(fast.point, top, atol=1e-4)
    assert fast.n_sweeps < 0.05 * plain.n_sweeps
    assert steady.n_sweeps < 0.08 * plain.n_sweeps
    assert plain.n_sweeps == len(plain.trace)


def test_ascent_survives_misleading_extrapolations() -> None:
    """A map with a kink: candidates that would lower the objective are dropped."""
    rejected = 0

    def evaluate(x: Array, carry: int) -> tuple[float, None]:
        return float(-np.abs(x).sum() - np.exp(5.0 * np.maximum(-x, 0.0)).sum()), None

    def improve(x: Array, _: None) -> tuple[Array, int]:
        return np.sign(x) * np.maximum(0.6 * np.abs(x) - 0.05, 0.0), 0

    for seed in range(10):
        start = np.random.default_rng(seed).uniform(0.5, 5.0, 4)
        run = ascend(evaluate, improve, start, 0, memory=3, max_sweeps=200, tol=1e-9)
        assert (np.diff(run.trace) >= 0).all()
        assert run.converged
        np.testing.assert_allclose(run.point, 0.0, atol=1e-6)
        rejected += run.n_sweeps - len(run.trace)
    assert rejected > 0


def test_steady_weights_do_not_magnify_rounding() -> None:
    """Residuals that differ by a hundred-thousandth: bold weights depend on the last digits."""
    rng = np.random.default_rng(0)
    residuals = rng.standard_normal((1, 30)) + 1e-5 * rng.standard_normal((5, 30))
    normal, sides = residuals @ residuals.T, residuals @ rng.standard_normal(30)
    rounded = normal * (1.0 + 1e-15 * rng.standard_normal((5, 5)))
    rounded = (rounded + rounded.T) / 2.0
    changes = [
        np.abs(weights(normal, sides) - weights(rounded, sides)).max()
        for weights in (_bold_weights, _steady_weights)
    ]
    assert changes[0] > 1e-6
    assert changes[1] < 1e-13


@pytest.mark.parametrize("most", [1, 2, 5])
def test_ascent_stops_at_the_limit(most: int) -> None:
    evaluate, improve, _ = quadratic(10, 0)
    run = ascend(evaluate, improve, np.zeros(10), 0, memory=0, max_sweeps=most, tol=1e-12)
    assert run.n_sweeps == len(run.trace) == most
    assert not run.converged


# --- eigenpairs ---------------------------------------------------------------------------------


@relaxed
@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_leading_eigenpairs_are_exact_in_few_dimensions(D: int, rank: int, seed: int) -> None:
    rank = min(rank, D)
    A = np.random.default_rng(seed).standard_normal((D, D))
    A = A @ A.T
    values, V = leading_eigenpairs(lambda M: A @ M, D, rank)
    expected = np.linalg.eigvalsh(A)[::-1][:rank]
    np.testing.assert_allclose(values, expected, atol=1e-9 * max(1.0, float(np.trace(A))))
    np.testing.assert_allclose(A @ V, V * values, atol=1e-8 * max(1.0, float(np.trace(A))))
    np.testing.assert_allclose(V.T @ V, np.eye(rank), atol=1e-9)


@pytest.mark.parametrize("rank", [1, 4])
def test_leading_eigenpairs_by_iteration(rank: int) -> None:
    """Above the dense limit: subspace iteration finds well separated pairs."""
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.standard_normal((600, 600)))[0]
    spectrum = np.r_[100.0, 60.0, 30.0, 20.0, np.linspace(2.0, 0.0, 596)]
    A = (Q * spectrum) @ Q.T
    values, V = leading_eigenpairs(lambda M: A @ M, 600, rank)
    np.testing.assert_allclose(values, spectrum[:rank], rtol=1e-6)
    np.testing.assert_allclose(np.abs((V * Q[:, :rank]).sum(axis=0)), 1.0, atol=1e-6)
