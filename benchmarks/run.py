"""Print the benchmark table and write it as JSON: `python -m benchmarks.run [FILE]`."""

import json
import os
import sys
from pathlib import Path

from benchmarks import (
    autoencoder,
    black_box,
    command,
    complete,
    counts,
    many_sets,
    missing,
    out_of_core,
    refit,
    robust,
)

GROUPS = (
    complete.tall,
    complete.peers,
    complete.sparse,
    many_sets.sets,
    refit.refits,
    missing.sweep,
    missing.acceleration,
    black_box.step,
    counts.peers,
    autoencoder.step,
    robust.speed,
    robust.memory,
    command.fit,
    out_of_core.disk,
    out_of_core.missing,
    out_of_core.cluster,
)


def main(output: str = "bench.json") -> int:
    """Run all groups; the exit code says whether every limit was kept."""
    results = []
    for group in GROUPS:
        for result in group():
            results.append(result)
            sign = ">=" if result.at_least else "<="
            verdict = "ok" if result.ok else "MISSED"
            line = f"{result.what:60s} {result.value:8.2f} {sign} {result.limit:5.2f}  {verdict:6s}"
            print(f"{line}  {result.detail}", flush=True)
    rows = [{**result._asdict(), "ok": result.ok} for result in results]
    Path(output).write_text(json.dumps({"cores": os.cpu_count(), "results": rows}, indent=1))
    return 0 if all(result.ok for result in results) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
