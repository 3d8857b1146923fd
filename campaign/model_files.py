"""Model files with mutated bytes and forged contents.

Every kind of model file that the tests keep is damaged, or forged under a checksum that matches. It
is refused in one sentence, or read as exactly what it holds; nothing in it runs. What is read then
goes through `transform`.
"""

import tempfile
import warnings
from pathlib import Path

from campaign.case import Report, TroubleError, generator
from tests.io import test_file_fuzz as fuzz


def run(number: int) -> Report:
    """Read one model file."""
    rng = generator("model_files", number)
    which = number % len(fuzz.FILES)
    raw, expected = fuzz.mutated(fuzz.FILES[which], rng)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            verdict = fuzz.outcome(raw, expected, Path(folder))
        except AssertionError as error:
            said = f"{error}" or "read as something else, or refused in more than one sentence"
            raise TroubleError(said) from error
    if fuzz.seen:
        raise TroubleError(f"reading ran {fuzz.seen.pop()}")
    return Report("mutated or forged", "answered" if verdict == "read" else "refused")
