"""What holds for every test and every example in the documentation."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Let JAX keep what it compiled for the next run, in a folder of each process."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    folder = Path(__file__).parent / "build" / "compiled" / worker
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(folder))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


@pytest.fixture(autouse=True)
def published_data(request: pytest.FixtureRequest) -> None:
    """Skip the examples of functions that fetch data if no folder has them."""
    example = isinstance(request.node, pytest.DoctestItem)
    if example and ".fetch_" in request.node.name and "CONTRASTIVE_LVM_DATA" not in os.environ:
        pytest.skip("needs the data under CONTRASTIVE_LVM_DATA")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Close the figures that a test has opened, where some package has loaded pyplot."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        from matplotlib import pyplot as plt

        plt.close("all")
