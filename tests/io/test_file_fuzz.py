"""Thousands of damaged and forged model files: refused in one sentence, or read as they say."""

import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.io.container import VERSION
from contrastive_lvm.io.model_files import read_model, write_model
from contrastive_lvm.io.tables.preparation import check_preparation
from tests.io.model_bytes import Contents, opened, same_contents, sealed

HOME = Path(__file__).parent / "fixtures" / "models" / f"v{VERSION}"
FILES = [file.read_bytes() for file in sorted(HOME.glob("*.clvm"))]
ROWS = np.arange(10.0).reshape(2, 5) % 2
Rng = np.random.Generator
QUIET = pytest.mark.filterwarnings("ignore")  # rows without names, numbers near the largest

# Nothing of this may happen while a file is read.
FORBIDDEN = (
    *("exec", "compile", "os.system", "os.exec", "os.fork", "subprocess.Popen", "socket."),
    *("pickle.find_class", "marshal.loads", "ctypes.dlopen"),
)
watching: list[bool] = [False]
seen: list[str] = []


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if watching[0] and event.startswith(FORBIDDEN):
        seen.append(event)


# Damage: what disks, networks and editors do to bytes.


def flipped(raw: bytes, rng: Rng) -> bytes:
    bits = bytearray(raw)
    header = rng.random() < 0.5  # half of them where there is most to misread
    for _ in range(rng.integers(1, 5)):
        bits[rng.integers(len(bits) // (2 if header else 1))] ^= 1 << int(rng.integers(8))
    return bytes(bits)


def cut(raw: bytes, rng: Rng) -> bytes:
    return raw[: int(rng.integers(len(raw)))]


def inserted(raw: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(len(raw) + 1))
    return raw[:at] + rng.bytes(int(rng.integers(1, 20))) + raw[at:]


def deleted(raw: bytes, rng: Rng) -> bytes:
    at = int(rng.integers(len(raw)))
    return raw[:at] + raw[at + int(rng.integers(1, 20)) :]


def swapped(raw: bytes, rng: Rng) -> bytes:
    a, b, c, d = np.sort(rng.integers(len(raw) + 1, size=4))
    return raw[:a] + raw[c:d] + raw[b:c] + raw[a:b] + raw[d:]


def overwritten(raw: bytes, rng: Rng) -> bytes:
    at, n = int(rng.integers(len(raw))), int(rng.integers(1, 64))
    return raw[:at] + bytes([int(rng.choice([0, 32, 255]))]) * n + raw[at + n :]


def misled(raw: bytes, rng: Rng) -> bytes:
    """Another length of the header, up to the largest number there is."""
    length = int(rng.integers(2**63)) >> int(rng.integers(63))
    return length.to_bytes(8, "little") + raw[8:]


def reworded(raw: bytes, rng: Rng) -> bytes:
    """Text of the header in which a name or a number is another; nothing is sealed again."""
    words = [b'"F64"', b"data_offsets", b"shape", b"settings", b"sha256", b"version", b"true", b"0"]
    old = words[int(rng.integers(len(words)))]
    new = words[int(rng.integers(len(words)))]
    return raw.replace(old, new, int(rng.integers(1, 4)))


DAMAGES = (flipped, cut, inserted, deleted, swapped, overwritten, misled, reworded)

# Forgery: contents that make no sense under a checksum that matches.

DEEP: Any = 1
for _ in range(200):
    DEEP = [DEEP]
ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2.5, -1e-300, 1e308, 10**30, -(10**30), 10**400, 2**62),
    *(float("nan"), float("inf"), "", "x", "nan", "os.system", "\ud800", "a" * 5000),
    *([], [1, 2], [[]], {}, {"$class": "subprocess:Popen", "fields": {"args": "true"}}),
    *({"$class": "contrastive_lvm.__main__:x", "fields": {}}, {"$class": 3}, {"$class": "a:b"}),
    *({"$class": "contrastive_lvm:ARD", "fields": {"a0": -1.0, "b0": 1.0}}, {"$unknown": 1}),
    *({"$class": "contrastive_lvm:EM", "fields": {}}, {"$class": "builtins:dict", "fields": {}}),
    *({"$dict": [[[], 1]]}, {"$dict": [["a", 1]]}, {"$float": "1e999"}, {"$float": [1]}, DEEP),
    *({"$random_state": {"key": [1]}}, {"$array": "<f8", "shape": [10**12]}, {"$tuple": 3}),
    *({"$tuple": []}, {"$tuple": [10**12]}, {"$tuple": [4, 10**12]}, {"$tuple": [True]}),
    *({"$tuple": [4] * 3000}, {"$class": "contrastive_lvm:load_model", "fields": {"path": "x"}}),
)


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything in settings."""
    found = [path] if path else []
    if isinstance(tree, dict | list) and len(path) < 12:
        for key, value in tree.items() if isinstance(tree, dict) else enumerate(tree[:5]):
            found += places(value, (*path, key))
    return found


def resettled(contents: Contents, rng: Rng) -> Contents:
    """A setting replaced, removed, renamed or added, anywhere."""
    settings = json.loads(json.dumps(contents.settings))
    paths = places(settings)
    *way, last = paths[int(rng.integers(len(paths)))]
    holder = settings
    for key in way:
        holder = holder[key]
    action = rng.random()
    if action < 0.75:
        holder[last] = ODD[int(rng.integers(len(ODD)))]
    elif action < 0.85:
        del holder[last]
    elif isinstance(holder, dict):
        holder["unknown"] = holder.pop(last) if action < 0.95 else 1
    else:
        holder.append(holder[last])
    return contents._replace(settings=settings)


def revalued(array: np.ndarray, rng: Rng) -> np.ndarray:
    odd = (np.nan, np.inf, -np.inf, -1.0, 0.0, -0.0, 1e-320, 0.5, 1e30)
    changed = array.copy()
    if changed.size and changed.dtype.kind == "f":
        changed.flat[rng.integers(changed.size)] = odd[int(rng.integers(len(odd)))]
    return changed


def reshaped(array: np.ndarray, rng: Rng) -> np.ndarray:
    ways: tuple[Callable[[], np.ndarray], ...] = (
        array.T.copy,
        array.ravel,
        lambda: array[..., None],
        lambda: array[None],
        lambda: array[:0] if array.ndim else array[None][:0],
        lambda: np.concatenate([np.atleast_1d(array)] * 2),
        lambda: np.atleast_1d(array)[:-1],
        np.atleast_1d(array)[..., :-1].copy,
    )
    return ways[int(rng.integers(len(ways)))]()


def rekinded(array: np.ndarray, rng: Rng) -> np.ndarray:
    kind = rng.choice(["<f4", "<f2", "<i8", "|u1", "|b1"])
    with np.errstate(all="ignore"):
        return array.astype(kind)


def rearranged(contents: Contents, rng: Rng) -> Contents:
    """An array changed, renamed, dropped, doubled or exchanged for another."""
    arrays = dict(contents.arrays)
    name, other = (str(n) for n in rng.choice(list(arrays), size=2))
    action = rng.random()
    if action < 0.4:
        arrays[name] = revalued(arrays[name], rng)
    elif action < 0.6:
        arrays[name] = reshaped(arrays[name], rng)
    elif action < 0.75:
        arrays[name] = rekinded(arrays[name], rng)
    elif action < 0.85:
        del arrays[name]
    elif action < 0.95:
        arrays[name], arrays[other] = arrays[other], arrays[name]
    else:
        arrays[f"{name}.more"] = arrays[name]
    changed = contents._replace(arrays=arrays)
    return changed if rng.random() < 0.2 else changed.described()


FORGERIES = (resettled, resettled, rearranged)


def mutated(raw: bytes, rng: Rng) -> tuple[bytes, Contents]:
    """A file, and the contents it must have if it is read at all."""
    if rng.random() < 0.4:
        return DAMAGES[int(rng.integers(len(DAMAGES)))](raw, rng), opened(raw)
    contents = opened(raw)
    for _ in range(rng.integers(1, 3)):
        contents = FORGERIES[int(rng.integers(len(FORGERIES)))](contents, rng)
        if not isinstance(contents.settings, dict) or not contents.arrays:
            break
    return sealed(contents), contents


# Reading a file of each kind imports what this package needs for it, before anyone watches.
MODELS = {file.stem: read_model(file)[0] for file in HOME.glob("*.clvm")}
MIXED = MODELS["mixed"].likelihood


def rich() -> bytes:
    """A file with what the others lack: draws, a random state, tuples, infinite numbers."""
    rng = np.random.default_rng(0)
    prior = clvm.GroupLasso(2.0, groups={"g": ("a", "d"), float("inf"): ["e"]})
    model = read_model(HOME / "gaussian.clvm")[0]
    model.set_params(target_prior=prior, inference=clvm.EM(tol=0.5))
    model.random_state = np.random.RandomState(0)
    shapes = {"W": (5, 1), "S": (5, 1), "noise variance": (), "log density": ()}
    drawn = {name: rng.standard_normal((2, 3, *shape)) for name, shape in shapes.items()}
    apart = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    model.posterior_ = model.posterior_._replace(draws=clvm.Draws(drawn, apart, apart, 1))
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.clvm")
        return (Path(folder) / "model.clvm").read_bytes()


FILES.append(rich())


def outcome(raw: bytes, expected: Contents, folder: Path) -> str:
    """Whether a file is refused in one sentence, or read as exactly what it holds."""
    path, again = folder / "model.clvm", folder / "again.clvm"
    path.write_bytes(raw)
    watching[0] = True
    try:
        model, section = read_model(path)
    except clvm.ModelFileError as error:
        message = str(error)
        assert message.startswith(str(path))
        assert message.endswith(".")
        assert "\n" not in message
        assert ". " not in message
        assert len(message) < 1000
        return "refused"
    finally:
        watching[0] = False
    if section is not None:
        with suppress(clvm.ModelFileError):
            check_preparation(section, path)
    write_model(model, again, section)
    assert same_contents(opened(again.read_bytes()), expected)
    if "VAE" not in type(model).__name__:
        with suppress(InvalidDataError):  # rows that overflow in units of 1e-300
            assert applied(model).shape[0] == len(ROWS)
    return "read"


def applied(model: Any) -> Any:
    """Latents; without a profile of counts a model wants the sizes of rows, as it says."""
    counts = model.get_params().get("likelihood") in ("poisson", "negative_binomial", MIXED)
    if counts and model.posterior_.profile is None:
        return model.transform(ROWS, size_factors=np.ones(len(ROWS)))
    return model.transform(ROWS)


def survives(n: int, folder: Path, seed: int) -> dict[str, int]:
    """What becomes of n files; the seed of one that fails is named."""
    sys.addaudithook(watch)
    counts = {"refused": 0, "read": 0}
    for i in range(n):
        raw, expected = mutated(FILES[i % len(FILES)], np.random.default_rng([seed, i]))
        try:
            counts[outcome(raw, expected, folder)] += 1
        except BaseException as error:
            raise AssertionError(f"seed [{seed}, {i}] of file {i % len(FILES)}") from error
    assert not seen
    return counts


@QUIET
def test_files_that_nobody_touched_are_read(tmp_path: Path) -> None:
    for raw in FILES:
        assert same_contents(opened(sealed(opened(raw))), opened(raw))
        assert outcome(sealed(opened(raw)), opened(raw), tmp_path) == "read"


@QUIET
def test_no_damaged_or_forged_file_is_read_as_something_else(tmp_path: Path) -> None:
    counts = survives(600, tmp_path, seed=1)
    assert counts["refused"] > 450


@QUIET
@pytest.mark.slow
def test_no_one_of_ten_thousand_is_read_as_something_else(tmp_path: Path) -> None:
    counts = survives(10_000, tmp_path, seed=0)
    assert counts["refused"] > 7_500
