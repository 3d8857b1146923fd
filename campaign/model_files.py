"""Model files with mutated bytes and forged contents.

Each case damages one of the model files that the tests keep, or forges it under a checksum that
matches. The file must be refused in one sentence, or read as exactly what it contains, and none of
its contents may run. A model that was read then goes through `transform`.
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
