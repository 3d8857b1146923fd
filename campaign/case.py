"""What a case reports, and what a refusal has to look like."""

import atexit
import shutil
import sys
import tempfile
import traceback
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np

import contrastive_lvm

T = TypeVar("T")
CLVM = (
    sys.executable,
    "-c",
    "from contrastive_lvm.cli.entry_point import run; raise SystemExit(run())",
)
PACKAGE = str(Path(contrastive_lvm.__file__).parent)


class Report(NamedTuple):
    """What became of one input."""

    group: str  # the line of the table that the input belongs to
    verdict: str  # "answered" or "refused"
    trouble: str = ""  # the invariant that failed, in one sentence


class TroubleError(AssertionError):
    """An invariant failed."""


def require(condition: object, sentence: str) -> None:
    """Raise unless an invariant holds."""
    if not condition:
        raise TroubleError(sentence)


def generator(part: str, number: int) -> np.random.Generator:
    """Return the random numbers of a case, the same whenever it is repeated."""
    return np.random.default_rng([*part.encode(), number])


def lasting_folder() -> Path:
    """Make a folder that is there until the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def pick(rng: np.random.Generator, table: dict[str, T]) -> tuple[str, T]:
    """Draw an entry of a table."""
    name = str(rng.choice(list(table)))
    return name, table[name]


def require_sentence(error: BaseException) -> None:
    """Require one sentence of ours: raised in the package, on one line, with a full stop.

    An exception that is raised inside another package comes from the inside of ours.
    """
    where = traceback.extract_tb(error.__traceback__)[-1]
    kind, text = type(error).__name__, str(error)
    said = f"{kind} at {Path(where.filename).name}:{where.lineno} ({text[:150]!r})"
    require(isinstance(error, ValueError | TypeError | OSError), f"refused by {said}")
    require(where.filename.startswith(PACKAGE), f"refused from the inside by {said}")
    require_one_sentence(text)


def require_one_sentence(text: str) -> None:
    """Require one line that ends with a full stop and is not longer than a reader wants."""
    require("\n" not in text and text.endswith((".", "?")), f"not one sentence: {text[:200]!r}")
    require(len(text) < 700, f"a sentence of {len(text)} letters: {text[:100]!r}")
    require(text.isprintable(), f"a sentence with control characters: {text[:200]!r}")
