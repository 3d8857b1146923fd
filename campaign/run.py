"""Run the campaign: `python -m campaign.run [--write] [PART ...]`, or one case again.

`--case arrays:1234` repeats a case and shows its traceback, `--share 0.01` runs the first hundredth
of each part, `--write` writes docs/campaign.md. The exit code is 1 if an invariant failed.

Cases run in worker processes, some hundred of them in one. A case that ends its process, or takes
longer than ten minutes, has failed; the others go on in a new process.
"""

import argparse
import faulthandler
import json
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from campaign.case import Report, TroubleError
from campaign.table import page

ROOT = Path(__file__).parents[1]


class Part(NamedTuple):
    """A part of the campaign, which is a module with a function `run`."""

    cases: int
    together: int  # cases of a worker process
    gigabytes: int = 0  # of memory that a worker may use; 0 for no limit


PARTS = {
    "arrays": Part(4000, 250),
    "files": Part(3500, 250, gigabytes=3),
    "model_files": Part(2300, 250),
    "spreadsheets": Part(300, 100),
    "pages": Part(40, 20),
    "faults": Part(240, 30),
    "signals": Part(60, 10),
}


def run_case(part: str, number: int) -> Report:
    """Run one case; whatever it raises is its trouble."""
    try:
        report: Report = import_module(f"campaign.{part}").run(number)
    except TroubleError as error:
        return Report("", "failed", _line(str(error)))
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(place.filename).name}:{place.lineno}"
        return Report("", "failed", _line(f"{type(error).__name__} at {where}: {error}"))
    return report


def _line(text: str) -> str:
    return " ".join(text.split())[:300]


def work(part: str, first: int, end: int) -> None:
    """Run cases and print a line of JSON for each."""
    if limit := PARTS[part].gigabytes << 30 if part in PARTS else 0:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    for number in range(first, end):
        faulthandler.dump_traceback_later(600.0, exit=True)
        print(json.dumps([f"{part}:{number}", *run_case(part, number)]), flush=True)
    faulthandler.cancel_dump_traceback_later()


def run_range(part: str, first: int, end: int) -> list[tuple[str, Report]]:
    """Run a range of cases in a worker process, and in another after each that dies."""
    found: list[tuple[str, Report]] = []
    while first < end:
        command = [sys.executable, "-m", "campaign.run", "--work", part, str(first), str(end)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
        found += [(case, Report(*report)) for case, *report in lines]
        first += len(lines)
        if first < end:
            said = (done.stderr.strip().splitlines() or [""])[-1]
            how = _line(f"the process ended with code {done.returncode}: {said}")
            found.append((f"{part}:{first}", Report("", "failed", how)))
            first += 1
    return found


def run_part(name: str, share: float, workers: int) -> list[tuple[str, Report]]:
    """Run a part on all workers."""
    cases = max(1, round(share * PARTS[name].cases))
    step = min(PARTS[name].together, -(-cases // workers))
    starts = range(0, cases, step)
    with ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(run_range, name, i, min(cases, i + step)) for i in starts]
        return [result for job in jobs for result in job.result()]


def run_parts(
    names: Iterable[str], share: float, workers: int
) -> dict[str, list[tuple[str, Report]]]:
    """Run parts one after the other, and say how each went."""
    found = {}
    for name in names:
        begin = time.perf_counter()
        found[name] = run_part(name, share, workers)
        failed = sum(bool(report.trouble) for _, report in found[name])
        seconds = time.perf_counter() - begin
        print(f"{name}: {len(found[name])} cases, {failed} failed, {seconds:.0f} s", flush=True)
    return found


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Look for inputs that are handled wrongly.")
    parser.add_argument("parts", nargs="*", help=f"{', '.join(PARTS)}; all of them by default")
    parser.add_argument("--case", help="a case to repeat, such as arrays:1234")
    parser.add_argument("--share", type=float, default=1.0, help="share of the cases to run")
    parser.add_argument("--workers", type=int, default=2, help="processes side by side")
    parser.add_argument("--write", action="store_true", help="write docs/campaign.md")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.work:
        work(asked.work[0], int(asked.work[1]), int(asked.work[2]))
        return 0
    if asked.case:
        part, number = asked.case.split(":")
        print(import_module(f"campaign.{part}").run(int(number)))
        return 0
    found = run_parts(asked.parts or PARTS, asked.share, asked.workers)
    text = page(
        {
            name: (import_module(f"campaign.{name}").__doc__ or "", own)
            for name, own in found.items()
        }
    )
    print(text)
    if asked.write:
        (ROOT / "docs" / "campaign.md").write_text(text, encoding="utf-8")
    return int(any(report.trouble for results in found.values() for _, report in results))


if __name__ == "__main__":
    sys.exit(main())
