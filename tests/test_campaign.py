"""A small part of the campaign, and whether the campaign would find what it looks for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from campaign import arrays, files
from campaign.case import Report, TroubleError, require_one_sentence, require_sentence
from campaign.run import PARTS, run_case, run_range
from campaign.table import failures, page

SMALL = {
    "arrays": range(42, 92),
    "files": range(60),
    "model_files": range(60),
    "spreadsheets": range(54),
}


@pytest.mark.parametrize("part", SMALL)
def test_some_cases_of_a_part(part: str) -> None:
    found = [(f"{part}:{i}", run_case(part, i)) for i in SMALL[part]]
    assert failures(found) == {}


def test_a_case_repeats_itself() -> None:
    X, B = arrays.planted(np.random.default_rng(3))
    again, background = arrays.planted(np.random.default_rng(3))
    assert np.array_equal(X, again)
    assert np.array_equal(B, background)
    assert run_case("arrays", 5) == run_case("arrays", 5)


def broken(**changes: Any) -> Callable[[Any, Any], Any]:
    """Return a `PPCA.fit` that publishes something wrong."""
    fit = clvm.PPCA.fit

    def fit_wrongly(self: Any, X: Any, y: Any = None) -> Any:
        fit(self, X)
        for name, change in changes.items():
            setattr(self, name, change(getattr(self, name)))
        return self

    return fit_wrongly


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"mean_": lambda mean: mean * np.nan}, "mean_ is not finite"),
        ({"components_": lambda W: W * np.inf}, "components_ is not finite"),
        ({"lower_bound_": lambda bound: bound * np.random.default_rng().random()}, "the bound"),
        ({"noise_variance_": lambda noise: -noise}, "negative noise"),
    ],
)
def test_wrong_answers_are_found(
    change: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clvm.PPCA, "fit", broken(**change))
    monkeypatch.setattr(arrays, "MODELS", {"ppca": clvm.PPCA(1)})
    monkeypatch.setattr(arrays, "VALUES", {"as drawn": arrays.VALUES["as drawn"]})
    monkeypatch.setattr(arrays, "TWINS", {"permuted rows": arrays.TWINS["permuted rows"]})
    said = [run_case("arrays", number).trouble for number in range(12)]
    assert any(sentence in trouble for trouble in said), said


def test_changed_inputs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoil(self: Any, X: Any, y: Any = None) -> Any:
        X[0, 0] += 1.0
        return fit(self, X)

    fit = clvm.PPCA.fit
    monkeypatch.setattr(clvm.PPCA, "fit", spoil)
    monkeypatch.setattr(arrays, "MODELS", {"ppca": clvm.PPCA(1)})
    said = {run_case("arrays", number).trouble for number in range(12)}
    assert "an input was changed" in said


def test_a_sentence_is_ours_and_one() -> None:
    with pytest.raises(TroubleError, match="from the inside by ValueError"):
        require_sentence(_raised(lambda: int("x")))
    require_sentence(_raised(lambda: clvm.datasets.make_subgroups(-1)))
    for text in ("two\nlines.", "no full stop", "a bell \a."):
        with pytest.raises(TroubleError):
            require_one_sentence(text)


def _raised(call: Callable[[], object]) -> BaseException:
    with pytest.raises(ValueError, match=r"\w") as caught:
        call()
    return caught.value


def test_commands_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    files.home()
    monkeypatch.setattr(files, "clvm", lambda words: 1)
    assert "exit code 1" in run_case("files", 0).trouble


def test_a_process_that_dies_is_a_failure() -> None:
    found = run_range("nowhere", 0, 1)
    assert len(found) == 1
    assert "No module named" in found[0][1].trouble


def test_the_page_counts_and_names_what_failed() -> None:
    reports = [("a:0", Report("x", "answered")), ("a:1", Report("", "failed", "it is 3 | 4"))]
    text = page({"a": ("What is tried.", [*reports, ("a:2", Report("", "failed", "it is 5 | 6"))])})
    assert "| a | 3 | 1 | 0 | 2 |" in text
    assert "- `a:1` (2): it is 3 \\| 4" in text
    assert set(PARTS) >= set(SMALL)
