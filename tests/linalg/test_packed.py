"""Packed symmetric matrices, against NumPy's dense linear algebra."""

from math import isqrt

import numpy as np
import pytest

from contrastive_lvm.linalg import packed
from tests.oracles import Array


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
    assert isqrt(2 * len(columns)) == K
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
