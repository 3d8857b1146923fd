"""Files through every command.

Each case writes a table of numbers with an annotation as CSV, TSV, NPY, NPZ, Parquet or h5ad, and
damages it as disks, spreadsheets and forgers do. The command must answer, or exit with code 2 and
one sentence. It must never show a traceback, change its inputs or leave other files behind. If it
refuses, its outputs must be unchanged. What `impute` answers for text is compared with what
Python's own `csv` and `float` read.
"""

import csv
import gzip
import io
import json
import pickle
import resource
import shutil
import tempfile
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from campaign.case import (
    Report,
    TroubleError,
    generator,
    lasting_folder,
    pick,
    require,
    require_one_sentence,
)
from contrastive_lvm.cli.main import run as clvm

Rng = np.random.Generator
MISSING = {"", "na", "nan", "n/a", "null", "none", "#n/a", "<na>"}

# --- good files ---------------------------------------------------------------------------------


def _table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    latent = rng.normal(size=(24, 2)) @ rng.normal(size=(2, 5))
    frame = pd.DataFrame((latent + 0.3 * rng.normal(size=(24, 5))).round(3), columns=list("abcde"))
    frame.iloc[2, 1] = np.nan
    return frame.assign(kind=["x", "y", "z"] * 8)


def _background() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    return pd.DataFrame(rng.normal(size=(20, 5)).round(3), columns=list("abcde"))


def _h5ad(frame: pd.DataFrame, file: Path) -> None:
    anndata = import_module("anndata")
    rows = [f"r{i}" for i in range(len(frame))]
    numbers = frame[list("abcde")].fillna(0.0)
    notes = pd.DataFrame({"kind": ["x"] * len(frame)}, index=rows)
    held = anndata.AnnData(numbers.to_numpy(), obs=notes, var=pd.DataFrame(index=list("abcde")))
    held.write_h5ad(file)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    ".csv": lambda frame, file: frame.to_csv(file, index=False),
    ".tsv": lambda frame, file: frame.to_csv(file, index=False, sep="\t"),
    ".csv.gz": lambda frame, file: frame.to_csv(file, index=False),
    ".npy": lambda frame, file: np.save(file, frame[list("abcde")].to_numpy()),
    ".npz": lambda frame, file: sparse.save_npz(
        file, sparse.csr_matrix(frame[list("abcde")].fillna(0.0))
    ),
    ".parquet": lambda frame, file: frame.to_parquet(file, index=False),
    ".h5ad": _h5ad,
}


@cache
def home() -> Path:
    """Write the good files and the models of each once in a process."""
    folder = lasting_folder()
    for ending, write in WRITERS.items():
        write(_table(), folder / f"good{ending}")
        write(_background(), folder / f"background{ending}")
        code, _, said = call(
            "fit",
            folder / f"good{ending}",
            folder / f"background{ending}",
            "--n-shared",
            1,
            "-o",
            folder / f"model{ending}.clvm",
        )
        require(code == 0, f"the good {ending} file is refused: {said}")
    return folder


def call(*words: object) -> tuple[int, str, str]:
    """Run a command in this process: exit code, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code = clvm([str(word) for word in words])
        except SystemExit as ending:
            code = int(ending.code or 0)
    return code, out.getvalue(), err.getvalue()


# --- damage -------------------------------------------------------------------------------------


def _flipped(raw: bytes, rng: Rng) -> bytes:
    bits = bytearray(raw)
    for _ in range(rng.integers(1, 5)):
        bits[rng.integers(len(bits))] ^= 1 << int(rng.integers(8))
    return bytes(bits)


def _inserted(raw: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(len(raw) + 1))
    return raw[:at] + rng.bytes(int(rng.integers(1, 20))) + raw[at:]


def _deleted(raw: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(len(raw)))
    return raw[:at] + raw[at + int(rng.integers(1, 40)) :]


BYTES: dict[str, Callable[[bytes, Rng], bytes]] = {
    "as it is": lambda raw, rng: raw,
    "flipped bits": _flipped,
    "cut off": lambda raw, rng: raw[: int(rng.integers(len(raw)))],
    "bytes inserted": _inserted,
    "bytes deleted": _deleted,
    "zeros at the end": lambda raw, rng: raw + b"\0" * int(rng.integers(1, 5000)),
    "twice": lambda raw, rng: raw + raw,
    "random": lambda raw, rng: rng.bytes(int(rng.integers(1, 2000))),
    "empty": lambda raw, rng: b"",
}
TOKENS = (
    *("1e400", "-1e400", "inf", "-Infinity", "NaN", "NA", "null", "", " ", "1,5", "1.5.2", "0x10"),
    *("1e", "--3", "1_000", "\u0661", "1\u00a0000", "12\x0034", "=1+1", '"1.5"', "'2'", "true"),
    *("9" * 400, "1e-400", "\ufeff3", "3\u202e", "1d3", "$3", "3 ", " 3", "+4", ".5", "5.", "-"),
)
NAMES = (
    "a",
    "",
    " ",
    "kind",
    '"q""uote"',
    "=cmd",
    "\x1b[31m",
    "\u202eb",
    "a\x00b",
    "é",
    "x" * 9000,
)


def _cells(raw: bytes, rng: Rng, change: Callable[[list[list[str]]], object]) -> bytes:
    """Change fields of a text that has one line a record."""
    text = raw.decode()
    mark = "\t" if "\t" in text else ","
    rows = [line.split(mark) for line in text.splitlines()]
    change(rows)
    return "\n".join(mark.join(row) for row in rows).encode(errors="surrogatepass") + b"\n"


def _token(raw: bytes, rng: Rng) -> bytes:
    def change(rows: list[list[str]]) -> None:
        for _ in range(rng.integers(1, 4)):
            rows[rng.integers(1, len(rows))][rng.integers(5)] = str(rng.choice(TOKENS))

    return _cells(raw, rng, change)


def _header(raw: bytes, rng: Rng) -> bytes:
    def change(rows: list[list[str]]) -> None:
        rows[0][rng.integers(len(rows[0]))] = str(rng.choice(NAMES))

    return _cells(raw, rng, change)


def _ragged(raw: bytes, rng: Rng) -> bytes:
    def change(rows: list[list[str]]) -> None:
        row = rows[rng.integers(len(rows))]
        row.pop() if rng.random() < 0.5 else row.append("1.5")

    return _cells(raw, rng, change)


def _lines(raw: bytes, rng: Rng) -> bytes:
    lines = raw.splitlines(keepends=True)
    at = int(rng.integers(len(lines)))
    ways = (
        lambda: lines[:at] + lines[at + 1 :],
        lambda: [*lines[:at], lines[at], *lines[at:]],
        lambda: lines[:1],
        lambda: lines[1:],
        lambda: [*lines[:at], b"\n", *lines[at:]],
        lambda: [*lines[:at], lines[0], *lines[at:]],
    )
    return b"".join(ways[int(rng.integers(len(ways)))]())


TEXTS: dict[str, Callable[[bytes, Rng], bytes]] = {
    "an odd number": _token,
    "an odd name": _header,
    "a ragged line": _ragged,
    "lines": _lines,
    "line ends": lambda raw, rng: raw.replace(b"\n", rng.choice([b"\r\n", b"\r", b"\n\n"])),
    "a byte order mark": lambda raw, rng: b"\xef\xbb\xbf" + raw,
    "another encoding": lambda raw, rng: raw.decode().encode(
        str(rng.choice(["utf-16", "utf-32", "cp037"]))
    ),
    "other separators": lambda raw, rng: raw.replace(b",", rng.choice([b";", b"\t", b"|", b" "])),
    "quotes": lambda raw, rng: raw.replace(
        b",", b'","' if rng.random() < 0.5 else b',"', int(rng.integers(1, 9))
    ),
    "a NUL byte": lambda raw, rng: _put(raw, b"\0", rng),
}


def _put(raw: bytes, what: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(len(raw)))
    return raw[:at] + what + raw[at:]


# --- forged arrays ------------------------------------------------------------------------------


def _saved(write: Callable[[io.BytesIO], object]) -> bytes:
    held = io.BytesIO()
    write(held)
    return held.getvalue()


def _array(values: Any) -> bytes:
    return _saved(lambda file: np.save(file, values, allow_pickle=True))


NPY: dict[str, Callable[[Rng], bytes]] = {
    "objects": lambda rng: _array(np.array([[1, "a"]] * 9, dtype=object)),
    "a pickle": lambda rng: pickle.dumps([1, 2]),
    "words": lambda rng: _array(np.full((9, 5), "a")),
    "dates": lambda rng: _array(np.full((9, 5), np.datetime64("2020-01-01"))),
    "complex": lambda rng: _array(np.full((9, 5), 1j)),
    "one dimension": lambda rng: _array(np.ones(5)),
    "three dimensions": lambda rng: _array(np.ones((4, 5, 2))),
    "no rows": lambda rng: _array(np.ones((0, 5))),
    "structured": lambda rng: _array(np.ones(9, dtype=[("a", float), ("b", float)])),
    "infinity": lambda rng: _array(np.full((9, 5), np.inf)),
    "column order": lambda rng: _array(np.asfortranarray(rng.normal(size=(24, 5)))),
    "a huge claim": lambda rng: _array(np.ones((24, 5))).replace(b"(24, 5), }  ", b"(10**9, 5), }"),
    "a huge number of rows": lambda rng: _array(np.ones((24, 5))).replace(
        b"(24, 5), }        ", b"(9999999999, 5), }"
    ),
    "half precision": lambda rng: _array(rng.normal(size=(24, 5)).astype(np.float16)),
}


def _csr(rng: Rng, **changes: Any) -> bytes:
    held: Any = sparse.csr_array(np.where(rng.random((24, 5)) < 0.5, rng.normal(size=(24, 5)), 0.0))
    parts = {
        "data": held.data,
        "indices": held.indices,
        "indptr": held.indptr,
        "shape": np.array(held.shape),
        "format": np.array(b"csr"),
    }
    parts |= {name: change(parts[name]) for name, change in changes.items()}
    return _saved(lambda file: np.savez(file, **parts))


NPZ: dict[str, Callable[[Rng], bytes]] = {
    "as it is": _csr,
    "columns out of range": lambda rng: _csr(rng, indices=lambda i: i + 3),
    "negative columns": lambda rng: _csr(rng, indices=lambda i: i - 2),
    "pointers out of range": lambda rng: _csr(rng, indptr=lambda p: p * 1000),
    "pointers that fall": lambda rng: _csr(rng, indptr=lambda p: p[::-1].copy()),
    "a huge shape": lambda rng: _csr(rng, shape=lambda s: np.array([24, 2**31 - 1])),
    "a huge number of rows": lambda rng: _csr(rng, shape=lambda s: np.array([2**40, 5])),
    "a negative shape": lambda rng: _csr(rng, shape=lambda s: -s),
    "an unknown format": lambda rng: _csr(rng, format=lambda f: np.array(b"xyz")),
    "complex data": lambda rng: _csr(rng, data=lambda d: d + 1j),
    "too little data": lambda rng: _csr(rng, data=lambda d: d[:3]),
    "words": lambda rng: _csr(rng, data=lambda d: np.full(len(d), "a")),
    "infinite data": lambda rng: _csr(rng, data=lambda d: d * np.inf),
    "one dense array": lambda rng: _saved(lambda f: np.savez(f, X=rng.normal(size=(24, 5)))),
    "several arrays": lambda rng: _saved(lambda f: np.savez(f, X=np.ones((9, 5)), Y=np.ones(3))),
    "no array": lambda rng: _saved(np.savez),
}


def damaged(ending: str, rng: Rng) -> tuple[str, bytes]:
    """Draw a damage of a file, and the bytes that it leaves."""
    raw = (home() / f"good{ending}").read_bytes()
    text = ending in (".csv", ".tsv", ".csv.gz")
    if ending in (".npy", ".npz") and rng.random() < 0.5:
        name, forge = pick(rng, NPY if ending == ".npy" else NPZ)
        return f"forged {ending}: {name}", forge(rng)
    if not text or rng.random() < 0.3:
        name, damage = pick(rng, BYTES)
        return f"{ending}: {name}", damage(raw, rng)
    name, change = pick(rng, TEXTS)
    plain = gzip.decompress(raw) if ending.endswith(".gz") else raw
    changed = change(plain, rng)
    return f"text: {name}", gzip.compress(changed) if ending.endswith(".gz") else changed


# --- commands -----------------------------------------------------------------------------------


def _command(name: str, file: Path, ending: str, folder: Path) -> list[object]:
    model, other = home() / f"model{ending}.clvm", home() / f"background{ending}"
    if name in ("fit", "select"):
        settings: list[object] = ["--n-shared", 1, "--json", "-o", folder / "out.clvm"]
        return [name, file, other, *settings, *(["--strengths", 2] if name == "select" else [])]
    if name == "fit, as the background":
        return ["fit", other, file, "--n-shared", 1, "--json", "-o", folder / "out.clvm"]
    if name == "compare":
        fewest = ["--n-components", 1, "--resamples", 1, "--json"]
        return [name, file, other, *fewest, "-o", folder / "out.png"]
    if name == "report":
        return [name, model, file, other, "-o", folder / "out.html"]
    return [name, model, file, "-o", folder / "out.csv"]


FITS = ("fit", "fit, as the background", "select", "compare")
COMMANDS = (*FITS, "report", "transform", "impute", "denoise", "score", "monitor")


def run(number: int) -> Report:
    """Run one command on one damaged file."""
    rng = generator("files", number)
    ending = str(rng.choice([*WRITERS, ".csv", ".csv", ".tsv"]))
    group, raw = damaged(ending, rng)
    name = str(rng.choice(COMMANDS))
    folder = Path(tempfile.mkdtemp(dir=home()))
    try:
        return Report(group, _checked(name, ending, raw, folder))
    except TroubleError as error:
        raise TroubleError(f"{group}, {name}: {error}") from error
    finally:
        shutil.rmtree(folder)


def _checked(name: str, ending: str, raw: bytes, folder: Path) -> str:
    file = folder / f"rows{ending}"
    file.write_bytes(raw)
    words = _command(name, file, ending, folder)
    output = Path(str(words[words.index("-o") + 1]))
    output.write_bytes(b"before")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    code, out, err = call(*words)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    require(grown < 500, f"{len(raw)} bytes take {grown:.0f} MB")
    require("Traceback" not in out + err, f"a traceback: {err[-200:]}")
    require(file.read_bytes() == raw, "the input was changed")
    left = sorted(path.name for path in folder.iterdir())
    require(left == sorted({file.name, output.name}), f"files left behind: {left}")
    require(code in (0, 2), f"exit code {code}: {err[-200:]}")
    if code == 2:
        require(output.read_bytes() == b"before", "the output of a refused command was changed")
        _, found, said = err.rpartition("clvm: ")  # what was read is told before
        require(found and said.endswith("\n"), f"standard error is {err[:200]!r}")
        require_one_sentence(said.removesuffix("\n"))
        require("not enough memory" not in err, f"{len(raw)} bytes take all memory")
        return "refused"
    require(output.read_bytes() != b"before", "no output was written")
    if "--json" in words:
        _require_finite(json.loads(out, parse_constant=_refuse))
    if name == "impute" and ending in (".csv", ".tsv"):
        _require_right(raw, output)
    return "answered"


def _refuse(text: str) -> float:
    raise TroubleError(f"the JSON has {text}")


def _require_finite(facts: dict[str, Any]) -> None:
    shares = facts.get("variance")
    if shares:
        total = sum(shares["target"]) + sum(shares["shared"]) + shares["noise"]
        require(abs(total - 1.0) < 1e-6, f"shares of variance sum to {total}")


def _require_right(raw: bytes, output: Path) -> None:
    """Require that observed entries are those that Python's own readers find."""
    text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    mark = max(",\t;| ", key=text.splitlines()[0].count)
    header, *body = [
        row for row in csv.reader(io.StringIO(text, newline=""), delimiter=mark) if row
    ]
    answer = pd.read_csv(output)
    require(len(answer) == len(body), f"{len(body)} rows become {len(answer)}")
    for name in "abcde":
        read = np.array([_number(row[header.index(name)]) for row in body])
        told = answer[name].to_numpy(dtype=float)
        seen = ~np.isnan(read)
        require(np.allclose(told[seen], read[seen], rtol=1e-12), f"column {name} has other numbers")


def _number(token: str) -> float:
    try:
        return np.nan if token.strip().lower() in MISSING else float(token)
    except ValueError:
        raise TroubleError(f"{token[:40]!r} is read as a number") from None
