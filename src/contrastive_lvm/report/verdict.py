"""Is the structure real? The test of contrast in one sentence, for commands and reports."""

from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from contrastive_lvm.resampling.contrast_test import ContrastTest

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


class Verdict(TypedDict):
    """What a test of contrast says; without numbers if there was no test."""

    sentence: str
    level: Literal["good", "care", "note"]
    pvalue: float | None
    pvalues: list[float]  # of each dimension, given those before it
    n_target: int | None  # dimensions supported at 5 %
    method: str


def verdict(test: "ContrastTest", shown: int | None = None) -> Verdict:
    """Say what a test found, beside a model that shows so many target dimensions."""
    supported = int(test.n_target)
    return {
        "sentence": _sentence(float(test.pvalue), supported, shown),
        "level": "good" if supported and supported >= (shown or 0) else "care",
        "pvalue": float(test.pvalue),
        "pvalues": [float(p) for p in test.pvalues],
        "n_target": supported,
        "method": test.method,
    }


def not_tested(reason: str) -> Verdict:
    """Say why there was no test."""
    sentence = f"Whether the target has structure of its own was not tested: {reason}."
    return {
        "sentence": sentence,
        "level": "note",
        "pvalue": None,
        "pvalues": [],
        "n_target": None,
        "method": "",
    }


def _sentence(pvalue: float, supported: int, shown: int | None) -> str:
    p = f"p = {rounded(pvalue)}"
    if not supported:
        sentence = f"No evidence that the target has structure of its own ({p})"
        if not shown:
            return f"{sentence}."
        which = "dimension below describes" if shown == 1 else "dimensions below describe"
        return f"{sentence}; the {which} noise."
    found = f"Target and background differ: {p}, {counted(supported)} supported"
    if shown is None or shown == supported:
        return f"{found}."
    if shown > supported:
        others = "the other describes" if shown - supported == 1 else "the others describe"
        return f"{found} of the {counted(shown, '')} below; {others} noise."
    return f"{found}, of which the model has {counted(shown, '')}."


def counted(number: int, noun: str = "dimension") -> str:
    """Return a number in words, with its noun.

    >>> counted(1), counted(2), counted(12, "row")
    ('one dimension', 'two dimensions', '12 rows')
    """
    word = NUMBERS[number] if number < len(NUMBERS) else f"{number:,}"
    return f"{word} {noun}{'' if number == 1 else 's'}" if noun else word


def rounded(pvalue: float) -> str:
    """Return a p-value with two significant digits, as people write it.

    >>> rounded(0.001), rounded(0.4132), rounded(1.0)
    ('0.001', '0.41', '1')
    """
    return f"{pvalue:.2g}"
