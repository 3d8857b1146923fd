"""`clvm fit` on a text of 20,000 rows and 1,000 columns, against the same in a script of Python."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.measure import Result

ROWS, FEATURES, REPEATS = 20_000, 1_000, 5
ARRAY = ROWS * FEATURES * 8 / 1e6  # megabytes

# Both also say what they take after their imports, the script without choosing rows: a strict
# measure, since the command also looks for outliers and asks what tells the sets apart.
SCRIPT = """
import json, sys, time
import pandas as pd
import contrastive_lvm as clvm

model = clvm.ContrastiveLVM(2, 10)
begin = time.perf_counter()
frame = pd.read_csv(sys.argv[1])
seconds = time.perf_counter() - begin
parts = [frame[frame["group"] == name].drop(columns="group") for name in ("case", "control")]
begin = time.perf_counter()
model.fit(parts[0], background=parts[1])
print(json.dumps(seconds + time.perf_counter() - begin))
"""
# Linux counts what the parent held into ru_maxrss of a child; VmHWM is of this program alone.
COMMAND = """
import pathlib, re, resource, sys, time
import pandas
from contrastive_lvm.cli import fit, parse_options
from contrastive_lvm.cli.main import run
from contrastive_lvm.io.tables import prepare
from contrastive_lvm.report import evidence, findings

begin = time.perf_counter()
code = run(sys.argv[1:])
seconds = time.perf_counter() - begin
status = pathlib.Path("/proc/self/status")
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if status.exists():
    peak = re.search(r"VmHWM:\\s+(\\d+)", status.read_text())[1]
print(seconds, peak, file=sys.stderr)
sys.exit(code)
"""


def fit() -> Iterator[Result]:
    """Whole processes take turns, imports included; the least seconds of each count."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = written(folder / "rows.csv")
        options = ["--by", "group", "--target", "case", "-o", str(folder / "model.clvm")]
        command = [sys.executable, "-c", COMMAND, "fit", str(path), *options]
        script = [sys.executable, "-c", SCRIPT, str(path)]
        ours, theirs, inner, own, peak = (float("inf"),) * 5
        for _ in range(REPEATS):
            seconds, done = timed(command)
            after_imports, kilobytes = map(float, done.stderr.split()[-2:])
            ours, own = min(ours, seconds), min(own, after_imports)
            peak = min(peak, kilobytes * 1024 / 1e6)
            seconds, done = timed(script)
            theirs, inner = min(theirs, seconds), min(inner, float(json.loads(done.stdout)))
    detail = f"{ours:.1f} s, read_csv and fit {inner:.1f} s, script {theirs:.1f} s"
    what = "clvm fit / a script that reads with pandas and fits, 20,000 x 1,000"
    yield Result(what, ours / theirs, 1.3, detail)
    yield Result("the same after imports", own / inner, 1.3, f"{own:.1f} s and {inner:.1f} s")
    yield Result(
        "memory of clvm fit / the array", peak / ARRAY, 3.0, f"{peak:.0f} MB with packages"
    )


def written(path: Path) -> Path:
    """Rows of two sets, with what only the first has in a tenth of the columns."""
    rng = np.random.default_rng(0)
    shared, own = rng.standard_normal((2, 8, FEATURES))
    own[:, FEATURES // 10 :] = 0.0
    case = rng.random(ROWS) < 0.6
    rows = rng.standard_normal((ROWS, 8)) @ shared + rng.standard_normal((ROWS, FEATURES))
    rows[case] += rng.standard_normal((int(case.sum()), 2)) @ own[:2]
    frame = pd.DataFrame(rows, columns=[f"feature {i}" for i in range(FEATURES)])
    frame.insert(0, "group", np.where(case, "case", "control"))
    frame.to_csv(path, index=False)
    return path


def timed(command: list[str]) -> tuple[float, "subprocess.CompletedProcess[str]"]:
    """Seconds of a process, and what it printed."""
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return time.perf_counter() - begin, done
