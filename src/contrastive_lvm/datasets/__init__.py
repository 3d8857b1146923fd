"""Simulated and real data sets.

Each function returns a named tuple with `target`, `background`, `target_labels`, `feature_names`,
`description` and further fields; `make_multi_set` returns one matrix of `rows` and their `sets`.
The `fetch_` functions look for their files in folders of `$CONTRASTIVE_LVM_DATA` and then in the
user's cache, and otherwise download them to the cache. If a file cannot be downloaded, they raise
FileNotFoundError, which says where to put the file; a damaged file raises ValueError.
"""

from contrastive_lvm.datasets.digits_on_texture import make_digits_on_texture
from contrastive_lvm.datasets.mice_protein import MiceProtein, fetch_mice_protein
from contrastive_lvm.datasets.mnist_on_grass import DigitsOnGrass, fetch_mnist_on_grass
from contrastive_lvm.datasets.multi_set import MultiSetData, make_multi_set
from contrastive_lvm.datasets.single_cells import CellCounts, fetch_bmmc, fetch_kang_pbmc
from contrastive_lvm.datasets.synthetic_sets import (
    ContrastiveData,
    make_contrastive,
    make_outliers,
    make_subgroups,
)
from contrastive_lvm.datasets.tennessee_eastman import ProcessData, fetch_tennessee_eastman
from contrastive_lvm.datasets.tenx import TenX, read_10x
from contrastive_lvm.datasets.wearable_sensors import SensorData, fetch_daily_sports, fetch_mhealth

__all__ = [
    "CellCounts",
    "ContrastiveData",
    "DigitsOnGrass",
    "MiceProtein",
    "MultiSetData",
    "ProcessData",
    "SensorData",
    "TenX",
    "fetch_bmmc",
    "fetch_daily_sports",
    "fetch_kang_pbmc",
    "fetch_mhealth",
    "fetch_mice_protein",
    "fetch_mnist_on_grass",
    "fetch_tennessee_eastman",
    "make_contrastive",
    "make_digits_on_texture",
    "make_multi_set",
    "make_outliers",
    "make_subgroups",
    "read_10x",
]
