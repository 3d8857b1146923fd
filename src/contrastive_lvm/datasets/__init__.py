"""Data to try the models on."""

from contrastive_lvm.datasets.synthetic import (
    ContrastiveData,
    make_contrastive,
    make_outliers,
    make_subgroups,
)

__all__ = ["ContrastiveData", "make_contrastive", "make_outliers", "make_subgroups"]
