"""A fit that is refused or interrupted anywhere leaves its estimator all old or all new."""

import inspect
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import contrastive_lvm as clvm

PACKAGE = str(Path(clvm.__file__).parent)
RNG = np.random.default_rng(0)
OLD, NEW = RNG.normal(size=(20, 4)), RNG.normal(size=(30, 5)) * 3.0 + 1.0
GAPS = np.where(RNG.random(NEW.shape) < 0.1, np.nan, NEW)
NETWORK: dict[str, Any] = {
    "hidden_layer_sizes": (3,),
    "max_epochs": 2,
    "refine_steps": 0,
    "random_state": 0,
}


class Interruption(BaseException):
    """An exception that nothing in the package expects."""


class Bomb:
    """A profiler that counts the calls of the package's functions and raises at one of them."""

    def __init__(self, at: int, *, event: str = "call") -> None:
        self.at, self.event, self.calls = at, event, 0

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        generator = code.co_flags & inspect.CO_GENERATOR  # Python drops errors of their clean-up
        if event == self.event and code.co_filename.startswith(PACKAGE) and not generator:
            self.calls += 1
            if self.calls == self.at:
                raise Interruption


def run(fit: Callable[[], Any], bomb: Bomb) -> bool:
    """Fit under a profiler, and say whether the fit was interrupted."""
    before = sys.getprofile()
    sys.setprofile(bomb)
    try:
        fit()
    except Interruption:
        return True
    finally:
        sys.setprofile(before)
    return False


def places(fit: Callable[[], Any], event: str, n: int) -> list[int]:
    """Return the first and the last call of a fit, and some between, chosen at random."""
    counter = Bomb(0, event=event)
    run(fit, counter)
    some = np.random.default_rng(1).integers(2, counter.calls, size=n)
    return sorted({1, *map(int, some), counter.calls})


def fitted(model: Any, rows: Any) -> Any:
    sets = {} if type(model) in (clvm.PPCA, clvm.VAE) else {"background": rows[::-1] * 0.5}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows, **sets)


def is_same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(found[k] is expected[k] for k in expected)


MODELS = {
    "gaussian": (clvm.ContrastiveLVM(1, 1), NEW, 12),
    "ard, missing entries": (clvm.ContrastiveLVM(1, "auto", shared_prior="ard"), GAPS, 12),
    "student t": (clvm.ContrastiveLVM(1, 1, likelihood="student_t"), GAPS, 12),
    "svi": (clvm.ContrastiveLVM(1, 1, inference=clvm.SVI(max_iter=20), random_state=0), NEW, 4),
    "ppca": (clvm.PPCA(1), NEW, 12),
    "ppca, missing entries": (clvm.PPCA(1), GAPS, 12),
    "contrastive pca": (clvm.ContrastivePCA(1), NEW, 12),
    "contrastive vae": (clvm.ContrastiveVAE(1, 1, **NETWORK), NEW, 4),
    "vae": (clvm.VAE(1, **NETWORK), GAPS, 4),
}
COMPILED = ("svi", "contrastive vae", "vae")  # anew for rows of every other shape


def old_rows_of(name: str) -> Any:
    return MODELS[name][1][::-1] * 2.0 if name in COMPILED else OLD


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("event", ["call", "return"])
def test_interrupted_fit_is_all_old_or_all_new(name: str, event: str) -> None:
    model, rows, n = MODELS[name]
    old_rows = old_rows_of(name)
    first, again = clone(model), fitted(clone(model), old_rows)
    expected = fitted(clone(model), rows)
    outcomes = set()
    for at in places(partial(fitted, clone(model), rows), event, n):
        for estimator, old in ((first, dict(vars(first))), (again, dict(vars(again)))):
            interrupted = run(partial(fitted, estimator, rows), Bomb(at, event=event))
            same = is_same(vars(estimator), old)
            outcomes.add((interrupted, same))
            if not same:  # the last call returns after the estimator has changed
                assert vars(estimator).keys() == vars(expected).keys()
                np.testing.assert_array_equal(estimator.mean_, expected.mean_)
                assert estimator.n_features_in_ == rows.shape[1]
                estimator.__dict__ = old
        with pytest.raises(NotFittedError):
            first.transform(rows)
        assert again.transform(old_rows).shape == (len(old_rows), 1)
    assert (True, True) in outcomes


@pytest.mark.parametrize("name", MODELS)
def test_refused_fit_changes_nothing(name: str) -> None:
    model = clone(MODELS[name][0])
    bad = np.full((9, 3), 2.0)
    with pytest.raises(ValueError, match=r"too large|do not vary"):
        fitted(model, bad)
    with pytest.raises(NotFittedError):
        model.transform(bad)
    old = dict(vars(fitted(model, old_rows_of(name))))
    with pytest.raises(ValueError, match=r"too large|do not vary"):
        fitted(model, bad)
    assert is_same(vars(model), old)


def test_warnings_of_a_fit_point_at_the_line_that_called_it() -> None:
    for model in (
        clvm.ContrastiveLVM(1, 1, inference=clvm.EM(max_iter=1)),
        clvm.PPCA(1, max_iter=1),
    ):
        sets = {} if isinstance(model, clvm.PPCA) else {"background": GAPS[::-1] + 1.0}
        with pytest.warns(ConvergenceWarning) as caught:
            model.fit(GAPS, **sets)
        assert {warning.filename for warning in caught} == {__file__}
