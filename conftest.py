"""What holds for every test and every example in the documentation."""

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Close the figures that a test has opened, where some package has loaded pyplot."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        from matplotlib import pyplot as plt

        plt.close("all")
