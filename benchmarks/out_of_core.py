"""Rows out of core: memory and time of fits to files, and of fits on a Dask cluster.

Memory is the most that a process of its own held in RAM, with everything it imported.
"""

import os
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import contrastive_lvm as clvm
from benchmarks.measure import Result

D = 100
BLOCK = 16_384  # rows of the bare pass, as many as the fit takes at a time


def write(path: Path, n_rows: int, *, missing: bool = False, seed: int = 0) -> None:
    """Twelve dimensions in unit noise, float32; `missing` also brings heavy tails."""
    rng = np.random.default_rng(seed)
    L = np.random.default_rng(0).standard_normal((12, D), dtype=np.float32)
    header = {"descr": "<f4", "fortran_order": False, "shape": (n_rows, D)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(0, n_rows, 50_000):
            rows = rng.standard_normal((50_000, D), dtype=np.float32)
            if missing:
                rows /= np.sqrt(rng.chisquare(4.0, rows.shape).astype(np.float32) / 4.0)
            rows += rng.standard_normal((50_000, 12), dtype=np.float32) @ L
            if missing:
                rows[rng.random(rows.shape, dtype=np.float32) < 0.05] = np.nan
            rows.tofile(file)
        os.fsync(file.fileno())  # or the disk is still busy with it while others read


def bare(path: Path) -> Any:
    """Read the file and form the scatter matrix, nothing else."""
    X, total = np.load(path, mmap_mode="r"), np.zeros((D, D))
    for start in range(0, len(X), BLOCK):
        rows = np.asarray(X[start : start + BLOCK])
        total += rows.T @ rows
    return total


def gaussian(path: Path) -> Any:
    """Twelve target dimensions."""
    return clvm.ContrastiveLVM(12, 0).fit(np.load(path, mmap_mode="r"))


def robust(path: Path) -> Any:
    """A few sweeps of Student-t noise with missing entries."""
    engine = clvm.EM(max_iter=6)
    model = clvm.ContrastiveLVM(2, 0, likelihood="student_t", inference=engine)
    return model.fit(np.load(path, mmap_mode="r"))


TASKS = {"bare": bare, "gaussian": gaussian, "robust": robust}


def most_megabytes() -> float:
    """Most memory in RAM since this process began; what the system says of children is not."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) / 1e3 for line in lines if line.startswith("VmHWM"))


def alone(task: str, path: Path) -> tuple[float, float]:
    """Seconds and megabytes of a task in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.out_of_core", task, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes = run.stdout.split()
    return float(seconds), float(megabytes)


def disk(repeats: int = 7) -> list[Result]:
    """5,000,000 x 100 float32 in a file of 2 GB."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, 5_000_000)
        runs = [(alone("bare", path), alone("gaussian", path)) for _ in range(repeats)]
    ours, theirs = (min(run[i][0] for run in runs) for i in (1, 0))
    peak = max(run[1][1] for run in runs)
    return [
        Result("5,000,000 x 100 in a file: megabytes in RAM", peak, 400.0, "the file has 2,000"),
        Result(
            "the same: time / a bare pass that forms the scatter",
            ours / theirs,
            1.5,
            f"{ours:.2f} s and {theirs:.2f} s",
        ),
    ]


def missing() -> list[Result]:
    """1,000,000 x 100 with missing entries under Student-t noise: weights as large as the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, 1_000_000, missing=True)
        seconds, peak = alone("robust", path)
    detail = f"the file has 400; six sweeps in {seconds:.0f} s"
    what = "1,000,000 x 100 with missing entries in a file, Student-t: megabytes in RAM"
    return [Result(what, peak, 600.0, detail)]


def cluster(repeats: int = 12) -> list[Result]:
    """1,500,000 + 500,000 x 100 float32 on two workers, against memory on two cores."""
    arrays, distributed = import_module("dask.array"), import_module("distributed")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        write(path, 2_000_000)
        both = np.load(path)
        times: dict[str, list[float]] = {"memory": [], "Dask": []}
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, dashboard_address=":0"
            ) as local,
            distributed.Client(local),
        ):
            lazy = arrays.concatenate(
                [
                    arrays.from_delayed(_part(path, start), (100_000, D), np.float32)
                    for start in range(0, 2_000_000, 100_000)
                ]
            ).persist()
            sets = {"memory": both, "Dask": lazy}
            for _ in range(repeats):
                for name, rows in sets.items():
                    begin = time.perf_counter()
                    clvm.ContrastiveLVM(2, 10).fit(rows[:1_500_000], background=rows[1_500_000:])
                    times[name].append(time.perf_counter() - begin)
    ours, theirs = min(times["Dask"]), min(times["memory"])
    return [
        Result(
            "2,000,000 x 100 on two Dask workers: time / in memory on two cores",
            ours / theirs,
            1.3,
            f"{ours:.2f} s and {theirs:.2f} s",
        )
    ]


def _part(path: Path, start: int) -> Any:
    return import_module("dask").delayed(_read)(str(path), start)


def _read(path: str, start: int) -> Any:
    return np.array(np.load(path, mmap_mode="r")[start : start + 100_000])


if __name__ == "__main__":
    clvm.ContrastiveLVM()  # which imports what it needs, not on the clock
    begin = time.perf_counter()
    TASKS[sys.argv[1]](Path(sys.argv[2]))
    spent = time.perf_counter() - begin
    print(spent, most_megabytes())
