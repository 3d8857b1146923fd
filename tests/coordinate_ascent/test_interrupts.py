"""Ctrl-C: the best state so far is kept, if there is one."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import contrastive_lvm as clvm
from contrastive_lvm.coordinate_ascent.problem import Carry, Problem, RowResults
from tests.oracles import Array, planted, with_missing

MODELS: dict[str, dict[str, Any]] = {
    "em": {"n_target": 1, "n_shared": 2},
    "student_t": {"n_target": 1, "n_shared": 2, "likelihood": "student_t"},
    "auto": {"n_target": 1, "n_shared": "auto"},
    "restarts": {"n_target": 1, "n_shared": 2, "n_init": 3, "random_state": 0},
}


def data(seed: int = 2) -> tuple[Array, Array]:
    _, X, B = planted(seed, n=40, m=30, D=6, k=2, t=1)
    return with_missing(X, 0.1, 0), B


def interrupt_at(monkeypatch: pytest.MonkeyPatch, calls: set[int]) -> list[int]:
    """Let certain row steps raise KeyboardInterrupt; return a list with an entry for each."""
    count: list[int] = []
    evaluate = Problem.evaluate

    def interrupted(self: Problem, point: Array, carry: Carry) -> tuple[float, RowResults]:
        count.append(1)
        if len(count) in calls:
            raise KeyboardInterrupt
        return evaluate(self, point, carry)

    monkeypatch.setattr(Problem, "evaluate", interrupted)
    return count


@pytest.mark.parametrize("name", MODELS)
def test_an_interrupt_keeps_the_best_state_so_far(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, B = data()
    model = clvm.ContrastiveLVM(**MODELS[name])
    with monkeypatch.context() as patch:
        count = interrupt_at(patch, set())
        uninterrupted = model.fit(X, background=B).lower_bound_
    kept = []
    for call in np.unique(np.geomspace(1, len(count), 12).astype(int)).tolist():
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            interrupt_at(patch, {call})
            try:
                fitted = clvm.ContrastiveLVM(**MODELS[name]).fit(X, background=B)
            except KeyboardInterrupt:
                kept.append(-np.inf)
                continue
        messages = [str(warning.message) for warning in caught]
        assert any("the best state so far is kept" in message for message in messages)
        assert np.isfinite(fitted.transform(X)).all()
        assert (np.diff(fitted.lower_bounds_) >= 0).all()
        assert fitted.lower_bound_ <= uninterrupted + 1e-6
        assert not fitted.converged_ or name == "restarts"
        kept.append(fitted.lower_bound_)
    assert kept[0] == -np.inf  # nothing was known yet
    assert np.isfinite(kept[3:]).all()
    if name in ("em", "restarts"):  # otherwise scales or columns begin anew with lower bounds
        assert (np.diff(kept[3:]) >= -1e-9).all()


def test_the_bound_of_an_interrupted_fit_is_its_log_likelihood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, B = data()
    interrupt_at(monkeypatch, {9})
    interrupted = r"interrupted after \d+ sweeps; the best state so far"
    with pytest.warns(ConvergenceWarning), pytest.warns(UserWarning, match=interrupted):
        model = clvm.ContrastiveLVM(1, 2).fit(X, background=B)
    expected = model.score_samples(X).sum() + model.score_samples(B, of="background").sum()
    assert model.lower_bound_ == pytest.approx(expected, rel=1e-10)


def test_a_second_interrupt_ends_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second comes while the first start, which was better, is evaluated again."""
    X, B = data(4)
    count = interrupt_at(monkeypatch, set())
    best = clvm.ContrastiveLVM(1, 2).fit(X, background=B)
    first = len(count) - len(best.lower_bounds_) + 1
    for call in range(2, first):
        with monkeypatch.context() as patch:
            interrupt_at(patch, set(range(call, call + 50)))
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    clvm.ContrastiveLVM(1, 2).fit(X, background=B)
            except KeyboardInterrupt:
                return
    pytest.fail("no second interrupt has ended a fit")


def test_an_interrupt_between_restarts_keeps_what_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    X, B = data()
    with monkeypatch.context() as patch:
        count = interrupt_at(patch, set())
        clvm.ContrastiveLVM(**MODELS["em"]).fit(X, background=B)
    with monkeypatch.context() as patch:
        interrupt_at(patch, {len(count) + 1})  # the first row step of the second start
        with pytest.warns(UserWarning, match="before the first restart; the best state so far"):
            model = clvm.ContrastiveLVM(**MODELS["restarts"]).fit(X, background=B)
    assert np.isfinite(model.lower_bound_)
