"""Write outcomes of experiments as Markdown."""

from collections.abc import Mapping, Sequence

from contrastive_lvm.experiments.outcome import Claim, Outcome

INTRODUCTION = """# The paper, reproduced

This page shows the output of `clvm reproduce all`: every experiment of Severson, Ghosh & Ng (2019)
and of its supplement. Each claim of the paper is a number with a threshold that it can miss.
Numbers over seeds are means, with the smallest and the largest in brackets; the worst seed decides
whether a claim is met.
"""


def rows(outcome: Outcome) -> list[tuple[str, ...]]:
    """Return the lines of the table, its heads first."""
    heads = tuple(outcome.table[0])
    return [heads, *(tuple(_entry(row[head]) for head in heads) for row in outcome.table)]


def _entry(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def page(outcomes: Sequence[Outcome], pictures: str = "") -> str:
    """Write all outcomes; `pictures` is the folder of figures, with a slash, or empty."""
    sections = []
    for outcome in outcomes:
        places = {name: f"{pictures}{outcome.name}_{name}.png" for name in outcome.figures}
        sections.append(markdown(outcome, places))
    return "\n".join([INTRODUCTION, *sections])


def markdown(outcome: Outcome, places: Mapping[str, str]) -> str:
    """Write one outcome; `places` has the file of each figure."""
    heads, *body = rows(outcome)
    table = [_line(heads), _line(["---"] * len(heads)), *(_line(row) for row in body)]
    claims = [
        _line(["the paper", "number", "measured", "threshold", ""]),
        _line(["---"] * 5),
        *(_line(_claim(claim)) for claim in outcome.claims),
    ]
    figures = [f"![{outcome.title}: {name}]({places[name]})" for name in outcome.figures]
    notes = [f"- {note}" for note in outcome.notes]
    parts = [f"## {outcome.title}", outcome.data, "\n".join(table), "\n".join(claims)]
    return "\n\n".join([*parts, *figures, "\n".join(notes)]) + "\n"


def _claim(claim: Claim) -> list[str]:
    sign = "\N{GREATER-THAN OR EQUAL TO}" if claim.at_least else "\N{LESS-THAN OR EQUAL TO}"
    verdict = "met" if claim.met else "**not met**"
    return [claim.says, claim.measure, f"{claim.value:.3g}", f"{sign} {claim.threshold:g}", verdict]


def _line(entries: Sequence[str]) -> str:
    return f"| {' | '.join(entries)} |"
