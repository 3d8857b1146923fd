"""Resamples side by side: seeds, progress and interruption."""

import logging
import os
import signal
import subprocess
import sys
from typing import Any

import joblib
import numpy as np
import pytest

from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.resampling.parallel import resample, seed_sequence

INTERRUPTED = """
import time
from contrastive_lvm.resampling.parallel import resample, seed_sequence

def slow(rngs):
    print("begun", flush=True)
    time.sleep(60)

resample(slow, 4, seed_sequence(0), n_jobs={n_jobs})
"""


def draw(rngs: list[np.random.Generator]) -> list[float]:
    return [float(rng.random()) for rng in rngs]


def test_results_do_not_depend_on_the_number_of_workers() -> None:
    alone = resample(draw, 20, seed_sequence(1))
    assert len(set(alone)) == 20
    assert resample(draw, 20, seed_sequence(1), n_jobs=2) == alone
    assert resample(draw, 20, seed_sequence(1), batch=7) == alone
    with joblib.parallel_config(backend="threading", n_jobs=3):
        assert resample(draw, 20, seed_sequence(1)) == alone


def test_fewer_resamples_are_the_first_of_more() -> None:
    assert resample(draw, 3, seed_sequence(5)) == resample(draw, 8, seed_sequence(5))[:3]


@pytest.mark.parametrize(
    "make", [lambda: 3, lambda: np.random.RandomState(3), lambda: np.random.default_rng(3)]
)
def test_seeds_of_every_kind_repeat(make: Any) -> None:
    found, again = (resample(draw, 4, seed_sequence(make())) for _ in range(2))
    assert found == again


def test_no_seed_is_another_seed_each_time() -> None:
    assert seed_sequence(None).entropy != seed_sequence(None).entropy


@pytest.mark.parametrize("value", [-1, "seed", 1.5])
def test_wrong_seeds_are_refused(value: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"^random_state="):
        seed_sequence(value)


def test_progress_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="contrastive_lvm"):
        resample(draw, 30, seed_sequence(0), name="bootstrap")
    assert len(caplog.messages) == 10
    assert caplog.messages[-1] == "bootstrap: resample 30, of 30"


def test_an_error_in_a_resample_is_raised() -> None:
    def fail(rngs: list[np.random.Generator]) -> list[float]:
        raise ZeroDivisionError(f"{rngs[0].random() < 1}")

    with pytest.raises(ZeroDivisionError, match="True"):
        resample(fail, 3, seed_sequence(0), n_jobs=2)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_interruption_ends_everything(n_jobs: int) -> None:
    """Interrupt as a terminal does it, the whole group at once; the pipe closes with the last."""
    code = INTERRUPTED.format(n_jobs=n_jobs)
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("begun")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=50)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
