"""Sparse matrices whose parts contradict each other are refused; others become canonical CSR."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.linalg.sparse_format import MOST_EMPTY, as_csr, check_compressed

DENSE = np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 4.0, 5.0]])


def damaged(change: Callable[[Any], None], form: Any = sp.csr_array) -> Any:
    X = form(DENSE)
    change(X)
    return X


def with_indices(X: Any) -> None:
    X.indices = np.array([0, 2, 1, 2, 400])


def with_negative_indices(X: Any) -> None:
    X.indices = np.array([0, 2, -1, 2, 3])


def with_pointers(X: Any) -> None:
    X.indptr = np.array([0, 4, 3, 5])


def with_long_pointers(X: Any) -> None:
    X.indptr = np.array([0, 2, 3, 500])


def with_few_indices(X: Any) -> None:
    X.indices = X.indices[:-1]


DAMAGES: dict[str, tuple[Any, str]] = {
    "index out of range": (damaged(with_indices), "the index 400 in an axis of length 4"),
    "negative index": (damaged(with_negative_indices), "the index -1 in an axis of length 4"),
    "pointers fall": (damaged(with_pointers), "pointers that do not increase from 0"),
    "pointers beyond": (damaged(with_long_pointers), "5 entries, but pointers to 500"),
    "indices too few": (damaged(with_few_indices), "5 entries, but 4 indices"),
    "columns of CSC": (damaged(with_indices, sp.csc_array), "index 400 in an axis of length 3"),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_matrices_are_refused(kind: str) -> None:
    X, reason = DAMAGES[kind]
    with pytest.raises(InvalidDataError, match=reason):
        as_csr(X, "X")
    with pytest.raises(InvalidDataError, match=f"^X is a damaged sparse matrix: .*{reason}"):
        clvm.PPCA(1).fit(X)


def test_damaged_coordinates_are_refused() -> None:
    X = sp.coo_array(DENSE)
    X.col[0] = 9
    with pytest.raises(InvalidDataError, match="the index 9 in an axis of length 4"):
        as_csr(X, "X")


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array, sp.coo_array, sp.dok_array])
def test_a_shape_that_is_only_a_claim_is_refused(form: Any) -> None:
    axis = int(form is not sp.csc_array)
    shape = [3, 3]
    shape[axis] = MOST_EMPTY + 1
    with pytest.raises(InvalidDataError, match="claims 4194305 rows or columns, but stores 0"):
        as_csr(form(tuple(shape)), "X")


def test_parts_are_checked_before_there_is_a_matrix() -> None:
    X = sp.csr_array(DENSE)
    check_compressed("a.npz", X.data, X.indices, X.indptr, (3, 4))
    with pytest.raises(InvalidDataError, match=r"^a\.npz is .*: it has 9 rows, but pointers of 3"):
        check_compressed("a.npz", X.data, X.indices, X.indptr, (9, 4))
    with pytest.raises(InvalidDataError, match="claims 2147483648 rows or columns"):
        check_compressed("a.npz", X.data, X.indices, X.indptr, (3, 1 << 31))
    with pytest.raises(InvalidDataError, match="indices that are not a list of whole numbers"):
        check_compressed("a.npz", X.data, X.data, X.indptr, (3, 4))
    with pytest.raises(InvalidDataError, match="pointers that are not a list of whole numbers"):
        check_compressed("a.npz", X.data, X.indices, X.data, (3, 4))


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(InvalidDataError, match="dtype complex128, which is not of real numbers"):
        clvm.PPCA(1).fit(sp.csr_array(DENSE.astype(complex)))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
@pytest.mark.parametrize("dtype", [np.int8, bool, np.float32, ">f8", np.uint64])
def test_all_formats_become_csr(form: str, dtype: Any) -> None:
    native: Any = sp.csr_array(DENSE.astype(np.dtype(dtype).newbyteorder("=")))
    X = native.asformat(form)
    if dtype == ">f8" and hasattr(X, "data") and form != "lil":
        X.data = X.data.astype(dtype)
    found = as_csr(X, "X")
    np.testing.assert_array_equal(found.toarray(), DENSE.astype(dtype))
    assert found.has_canonical_format
    assert found.dtype in (np.float32, np.float64)


def test_duplicates_add_up_and_the_input_stays() -> None:
    indices = np.array([2, 0, 2, 1, 3, 3, 2], dtype=np.int64)
    values = np.array([1.0, 1.0, 1.0, 3.0, 5.0, 0.0, 4.0])
    X = sp.csr_array((values, indices, np.array([0, 3, 4, 7])), shape=(3, 4))
    X.has_canonical_format = True  # which is not true
    found = as_csr(X, "X")
    np.testing.assert_array_equal(found.toarray(), DENSE)
    assert found.nnz == 5
    np.testing.assert_array_equal(X.indices, indices)
    np.testing.assert_array_equal(X.data, values)
