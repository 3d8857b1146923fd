"""Threads over chunks, and the limit of BLAS threads while they run."""

import os
import threading
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

from contrastive_lvm.arrays import Parameters
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.linalg.loadings import Loadings
from contrastive_lvm.rows import data, threads
from contrastive_lvm.rows.threads import one_blas_thread, together


class Library:
    """A BLAS library with a number of threads."""

    def __init__(self) -> None:
        self.num_threads, self.lib_controllers = 4, [self]

    def limit(self, *, limits: int) -> Any:
        return Limit(self, limits)


class Limit:
    def __init__(self, library: Library, limits: int) -> None:
        self.library, self.before = library, library.num_threads
        library.num_threads = limits

    def restore_original_limits(self) -> None:
        self.library.num_threads = self.before


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(threads, "_blas", lambda: found)
    monkeypatch.setattr(one_blas_thread, "_users", 0)  # tests of interrupts may leave some
    return found


def test_the_last_user_lifts_the_limit(library: Library) -> None:
    """Two fits in two threads leave in the order in which they came."""
    entered, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_blas_thread:
            entered.set()
            leave.wait(60)

    thread = threading.Thread(target=other)
    with one_blas_thread:
        thread.start()
        entered.wait(60)
        assert library.num_threads == 1
    assert library.num_threads == 1  # the other fit goes on
    leave.set()
    thread.join()
    assert library.num_threads == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without forks")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")  # of JAX, which the child leaves be
def test_a_forked_child_has_no_limit(library: Library) -> None:
    context = get_context("fork")
    queue = context.SimpleQueue()

    def child() -> None:
        free = library.num_threads
        with one_blas_thread:
            limited = library.num_threads
        queue.put((free, limited, library.num_threads))

    with one_blas_thread:
        process = context.Process(target=child)
        process.start()
        process.join(60)
    assert queue.get() == (4, 1, 4)


def test_the_limit_is_that_of_the_real_libraries() -> None:
    with one_blas_thread:
        found = ThreadpoolController().select(user_api="blas").lib_controllers
        assert {library.num_threads for library in found} <= {1}


@pytest.mark.parametrize("bad", [0, 1])
def test_work_on_other_items_is_cancelled(bad: int) -> None:
    ended = threading.Event()

    def work(item: int) -> None:
        if item == bad:
            raise KeyError("one of them")
        ended.wait(20)

    with pytest.raises(KeyError, match="one of them"):
        together(work, [0, 1], ended.set)
    assert ended.is_set()
    assert together(lambda item: item + 1, [0, 1], ended.set) == [1, 2]


def test_scatters_without_readers_start_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    X, L = np.random.default_rng(0).standard_normal((30, 4)), np.ones((4, 1))
    prepared = data.prepare([X, X + 1.0])._replace(readers=[])
    monkeypatch.setattr(data, "together", lambda *_: pytest.fail("threads were started"))
    p = Parameters(L, np.ones(4), (X.mean(axis=0), X.mean(axis=0) + 1.0))
    sums, _ = prepared.row_step(
        [Loadings(L)] * 2, p, (None, None), partial(StudentT().scales, df=4.0)
    )
    assert sums[0].statistics.bound == pytest.approx(sums[1].statistics.bound)
