"""Data to try the models on."""

from contrastive_lvm.datasets.digits import DigitsOnGrass, fetch_mnist_on_grass
from contrastive_lvm.datasets.synthetic import (
    ContrastiveData,
    make_contrastive,
    make_outliers,
    make_subgroups,
)

__all__ = [
    "ContrastiveData",
    "DigitsOnGrass",
    "fetch_mnist_on_grass",
    "make_contrastive",
    "make_outliers",
    "make_subgroups",
]
