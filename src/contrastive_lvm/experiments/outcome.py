"""The outcome of an experiment: a table, claims with thresholds, figures and notes."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure


class SeedSpread(NamedTuple):
    """One number, measured with several seeds."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Return the mean over seeds."""
        return float(np.mean(self.values))

    @property
    def least(self) -> float:
        """Return the smallest value over seeds."""
        return min(self.values)

    @property
    def most(self) -> float:
        """Return the largest value over seeds."""
        return max(self.values)

    def facts(self) -> dict[str, object]:
        """Return the values and their summaries, for JSON."""
        ends = {"mean": self.mean, "least": self.least, "most": self.most}
        return {**ends, "values": list(self.values)}

    def __str__(self) -> str:
        integers = all(float(value).is_integer() for value in self.values)
        least, most = (f"{v:.{0 if integers else 2}f}" for v in (self.least, self.most))
        if least == most:
            return least
        return f"{self.mean:.{1 if integers else 2}f} ({least} to {most})"


Entry = str | float | SeedSpread  # of a table


def spread(values: Iterable[float]) -> SeedSpread:
    """Collect the values of several seeds."""
    return SeedSpread(tuple(float(value) for value in values))


class Claim(NamedTuple):
    """A sentence of the paper as a number that can miss its threshold."""

    says: str
    measure: str  # what the number is
    value: float  # the worst over seeds
    threshold: float
    at_least: bool = True

    @property
    def met(self) -> bool:
        """Whether the number is on the right side of its threshold."""
        return self.value >= self.threshold if self.at_least else self.value <= self.threshold

    def __str__(self) -> str:
        sign = "at least" if self.at_least else "at most"
        verdict = "met" if self.met else "NOT MET"
        return f"{verdict}: {self.measure} {self.value:.3g} ({sign} {self.threshold:g})"


class Outcome(NamedTuple):
    """The results of an experiment."""

    name: str
    title: str
    data: str  # which data, and how many rows
    table: Sequence[Mapping[str, Entry]]  # rows of names, numbers and spreads
    claims: list[Claim]
    figures: Mapping[str, Figure]
    notes: list[str]  # how this differs from the paper, and why

    @property
    def met(self) -> bool:
        """Whether all claims are met."""
        return all(claim.met for claim in self.claims)

    def facts(self) -> dict[str, object]:
        """Return everything but the figures, for JSON."""
        return self._asdict() | {
            "table": [
                {k: v.facts() if isinstance(v, SeedSpread) else v for k, v in row.items()}
                for row in self.table
            ],
            "claims": [claim._asdict() | {"met": claim.met} for claim in self.claims],
            "figures": list(self.figures),
        }


def tabulate(head: str, columns: Mapping[str, Mapping[str, Entry]]) -> list[dict[str, Entry]]:
    """Make the rows of a table from its columns, each a mapping from the rows' names to values.

    >>> tabulate("model", {"ARI": {"one": 0.5, "two": 0.7}, "size": {"two": 8}})
    [{'model': 'one', 'ARI': 0.5, 'size': ''}, {'model': 'two', 'ARI': 0.7, 'size': 8}]
    """
    names = dict.fromkeys(name for values in columns.values() for name in values)
    return [
        {head: name, **{column: values.get(name, "") for column, values in columns.items()}}
        for name in names
    ]


def paragraphs(text: str) -> list[str]:
    """Split a text at its blank lines."""
    return [" ".join(part.split()) for part in text.strip().split("\n\n")]
