"""Faults of Dask and of the disk.

Chunks have other shapes or types than they claim, raise errors, or change between readings. Outputs
are folders, FIFOs, links or the inputs themselves. Files may not grow, or the folder for temporary
files is missing. Each case must end with the right answer or with one sentence. The estimator and
the files must be unchanged, and no temporary file may stay behind.
"""

import os
import resource
import shutil
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import contrastive_lvm as clvm
from campaign.case import (
    CLVM,
    Report,
    TroubleError,
    generator,
    lasting_folder,
    pick,
    require,
    require_one_sentence,
    require_sentence,
)

Rng = np.random.Generator
MODELS: dict[str, Any] = {
    "gaussian": clvm.ContrastiveLVM(1, 1),
    "student_t": clvm.ContrastiveLVM(1, 1, likelihood="student_t", inference=clvm.EM(max_iter=20)),
    "automatic": clvm.ContrastiveLVM(1, "auto"),
    "cpca": clvm.ContrastivePCA(1),
}


def _raise(chunk: np.ndarray) -> np.ndarray:
    raise OSError("the disk is gone")


def _missing(chunk: np.ndarray) -> np.ndarray:
    raise KeyError("chunk")


CHUNKS: dict[str, Callable[[np.ndarray], Any]] = {
    "as promised": lambda chunk: chunk,
    "raises OSError": _raise,
    "raises KeyError": _missing,
    "fewer rows": lambda chunk: chunk[:-1],
    "more rows": lambda chunk: np.vstack([chunk, chunk[:1]]),
    "no rows": lambda chunk: chunk[:0],
    "fewer columns": lambda chunk: chunk[:, :-1],
    "more columns": lambda chunk: np.column_stack([chunk, chunk[:, 0]]),
    "one dimension": lambda chunk: chunk.ravel(),
    "None": lambda chunk: None,
    "a number": lambda chunk: 3.0,
    "words": lambda chunk: chunk.astype(str),
    "complex": lambda chunk: chunk * 1j,
    "infinity": lambda chunk: chunk * np.inf,
    "all missing": lambda chunk: chunk * np.nan,
    "objects": lambda chunk: chunk.astype(object),
    "single precision": lambda chunk: chunk.astype(np.float32),
    "other values each time": lambda chunk: (
        chunk + np.random.default_rng().normal(size=chunk.shape)
    ),
}
HARMLESS = ("as promised", "all missing", "objects", "single precision", "other values each time")


def _lazy_sets(rng: Rng, change: Callable[[np.ndarray], Any]) -> list[Any]:
    """Return the two sets in four chunks each, one of them or two changed when they are read."""
    dask, da = import_module("dask"), import_module("dask.array")
    data = clvm.datasets.make_contrastive(40, 30, n_features=6, n_shared=1, random_state=1)
    sets: list[Any] = []
    for rows in (data.target, data.background):
        parts = np.array_split(rows, 4)
        bad = int(rng.integers(4)) if not sets or rng.random() < 0.5 else -1
        delayed = [
            dask.delayed(change if i == bad else _same)(part) for i, part in enumerate(parts)
        ]
        arrays = [da.from_delayed(d, p.shape, p.dtype) for d, p in zip(delayed, parts, strict=True)]
        sets.append(da.concatenate(arrays))
    return sets


def _dask(rng: Rng) -> Report:
    """Fit two sets, one of which has a chunk that is not what it claims to be."""
    (name, change), model = pick(rng, CHUNKS), clone(pick(rng, MODELS)[1])
    sets = _lazy_sets(rng, change)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fitted = model.fit(sets[0], background=sets[1])
    except Exception as error:
        if name not in ("raises OSError", "raises KeyError"):
            require_sentence(error)
        require(name not in ("as promised", "single precision"), f"{name} is refused: {error}")
        require(not hasattr(model, "mean_"), "a refused fit leaves results")
        return Report(f"Dask chunks: {name}", "refused")
    require(name in HARMLESS, f"a chunk with {name} is answered")
    require(np.isfinite(fitted.mean_).all(), "the mean is not finite")
    return Report(f"Dask chunks: {name}", "answered")


def _cluster(rng: Rng) -> Report:
    """Fit sets on a cluster of two processes, one chunk of which ends its worker."""
    distributed, model = import_module("distributed"), clvm.ContrastiveLVM(1, 1)
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**settings, silence_logs=50) as cluster,
        distributed.Client(cluster),
    ):
        sets = _lazy_sets(rng, _die)
        try:
            model.fit(sets[0], background=sets[1])
        except Exception as error:
            require("worker" in str(error).lower(), f"refused without a word about it: {error}")
    require(not hasattr(model, "mean_"), "a chunk that ends its worker is answered")
    return Report("Dask chunks: end their worker", "refused")


def _die(chunk: np.ndarray) -> np.ndarray:
    os._exit(1)


def _same(chunk: np.ndarray) -> np.ndarray:
    return chunk


# --- the disk -----------------------------------------------------------------------------------


@cache
def home() -> Path:
    """Write tables and a model once in a process."""
    folder = lasting_folder()
    data = clvm.datasets.make_subgroups(60, 50, random_state=0)
    for name, rows in (("target", data.target), ("background", data.background)):
        np.save(folder / f"{name}.npy", rows)
    code = _command(
        ["fit", folder / "target.npy", folder / "background.npy", "-o", folder / "model.clvm"]
    )
    require(code.returncode == 0, f"the good files are refused: {code.stderr!r}")
    return folder


def _command(words: list[object], **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*CLVM, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=100, **options
    )


def _little_space() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))


def _file(place: Path) -> None:
    place.write_bytes(b"before")
    place.chmod(0o640)


def _link(place: Path) -> None:
    (place.parent / "real").write_bytes(b"before")
    place.symlink_to("real")


# What stands where the output is to go.
OUTPUTS: dict[str, Callable[[Path], object]] = {
    "a file": _file,
    "little space": _file,
    "no temporary folder": _file,
    "a folder": Path.mkdir,
    "a FIFO": os.mkfifo,
    "a link to a file": _link,
    "a link to nothing": lambda place: place.symlink_to("nowhere"),
    "in a missing folder": lambda place: None,
    "the input": lambda place: None,
}
REFUSED = ("a folder", "a FIFO", "in a missing folder", "the input", "little space")
COMMANDS: dict[str, list[object]] = {
    "fit": ["fit", "target.npy", "background.npy", "-o"],
    "transform": ["transform", "model.clvm", "target.npy", "-o"],
    "report": ["report", "model.clvm", "target.npy", "background.npy", "-o"],
}


ENDINGS = {"fit": ".clvm", "transform": ".csv", "report": ".html"}


def _disk(rng: Rng) -> Report:
    """Run a command whose output, or whose folder for temporary files, is not as it should be."""
    (kind, prepare), (name, words) = pick(rng, OUTPUTS), pick(rng, COMMANDS)
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        shutil.copytree(home(), folder, dirs_exist_ok=True)
        place = folder / {"in a missing folder": "no/out", "the input": "target.npy"}.get(
            kind, "out"
        )
        place = place if kind == "the input" else place.with_suffix(ENDINGS[name])
        prepare(place)
        before = _listing(folder)
        done = _command(
            [*words, place],
            cwd=folder,
            preexec_fn=_little_space if kind == "little space" else None,
            env=os.environ | ({"TMPDIR": f"{folder}/no"} if kind == "no temporary folder" else {}),
        )
        try:
            return Report(f"outputs: {kind}", _judge(kind, done, place, before, _listing(folder)))
        except TroubleError as error:
            raise TroubleError(f"output {kind}, {name}: {error}") from error


Listing = dict[str, tuple[str, bytes]]  # kind and permissions of files, and their bytes


def _judge(
    kind: str,
    done: subprocess.CompletedProcess[str],
    place: Path,
    before: Listing,
    after: Listing,
) -> str:
    require("Traceback" not in done.stderr, f"a traceback: {done.stderr[-200:]}")
    require(done.returncode in (0, 2), f"exit code {done.returncode}: {done.stderr[-200:]}")
    if done.returncode == 2:
        require_one_sentence(done.stderr.rpartition("clvm: ")[2].strip())
        require(after == before, "a refused command changes files")
        return "refused"
    require(kind not in REFUSED, "answered")
    written = {place.name, "real", "nowhere"}
    rest = [{f: w for f, w in files.items() if f not in written} for files in (before, after)]
    require(rest[0] == rest[1], f"files changed or left behind: {sorted(rest[1])}")
    if place.name in before:
        same = after[place.name][0] == before[place.name][0]
        require(same, "the kind of the output or its permissions changed")
    return "answered"


def _listing(folder: Path) -> Listing:
    found: Listing = {}
    for path in sorted(folder.iterdir()):
        mode = path.lstat().st_mode
        raw = path.read_bytes() if stat.S_ISREG(mode) else b""
        found[path.name] = (stat.filemode(mode), raw)
    return found


def run(number: int) -> Report:
    """Run one fault: two of three in chunks of Dask, which are quicker; few on a cluster."""
    rng = generator("faults", number)
    if number % 40 == 1:
        return _cluster(rng)
    return _disk(rng) if number % 3 == 0 else _dask(rng)
