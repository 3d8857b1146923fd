"""The page of a campaign: what was tried, and what failed."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from campaign.case import Report

Results = Sequence[tuple[str, Report]]

HEAD = """# The campaign

`make campaign` sends strange inputs through the package and writes this page. The campaign looks
for wrong answers without a warning, for internal errors, and for files that are changed or left
behind. An input is *answered* if the result passes all checks. It is *refused* if the package
raises an error of one sentence. Anything else has *failed*. Each case has its own seed, and
`python -m campaign.run --case arrays:1234` repeats a case.

"""


def page(parts: Mapping[str, tuple[str, Results]]) -> str:
    """Write the page from the description and the results of each part."""
    lines = ["| part | cases | answered | refused | failed |", "|---|---|---|---|---|"]
    for name, (_, results) in parts.items():
        lines.append(f"| {name} | {_counts([report for _, report in results])} |")
    everything = [report for _, results in parts.values() for _, report in results]
    lines.append(f"| all | {_counts(everything)} |")
    sections = [_section(name, *part) for name, part in parts.items()]
    return HEAD + "\n".join([*lines, "", *sections])


def _counts(reports: Sequence[Report]) -> str:
    verdicts = Counter(report.verdict for report in reports)
    return " | ".join(f"{n:,}" for n in (len(reports), *(verdicts[v] for v in VERDICTS)))


VERDICTS = ("answered", "refused", "failed")


def _section(name: str, about: str, results: Results) -> str:
    """Write the table of a part by groups of inputs, and what failed."""
    groups: dict[str, list[Report]] = {}
    for _, report in results:
        if not report.trouble:
            groups.setdefault(report.group, []).append(report)
    rows = [f"| {_plain(group)} | {_counts(own)} |" for group, own in sorted(groups.items())]
    table = ["| input | cases | answered | refused | failed |", "|---|---|---|---|---|", *rows]
    parts = [f"## {name}", " ".join(about.split()), "\n".join(table)]
    failed = failures(results)
    if failed:
        listed = [
            f"- `{cases[0]}` ({len(cases)}): {_plain(said)}" for said, cases in failed.items()
        ]
        parts.append(
            "What failed, with the first case of each and their number:\n\n" + "\n".join(listed)
        )
    return "\n\n".join(parts) + "\n"


def failures(results: Results) -> dict[str, list[str]]:
    """Group the cases that failed by what they say, numbers left out; the most frequent first."""
    grouped: dict[str, list[tuple[str, str]]] = {}
    for case, report in results:
        if report.trouble:
            grouped.setdefault(re.sub(r"[\d.e+-]*\d", "#", report.trouble), []).append(
                (report.trouble, case)
            )
    ordered = sorted(grouped.values(), key=len, reverse=True)
    return {own[0][0]: [case for _, case in own] for own in ordered}


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
