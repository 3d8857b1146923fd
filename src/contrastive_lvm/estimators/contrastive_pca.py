"""Contrastive PCA (Abid et al. 2018), the baseline that needs a contrast parameter."""

from typing import Any, ClassVar, Self

import numpy as np
import scipy.linalg
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.cluster import SpectralClustering
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.core import scatter
from contrastive_lvm.core.gauge import canonical
from contrastive_lvm.core.scatter import DenseScatter
from contrastive_lvm.core.span import reduce_to_span
from contrastive_lvm.core.types import Array, Matrix
from contrastive_lvm.estimators.files import Saveable
from contrastive_lvm.estimators.validation import (
    check_rows_for_fit,
    check_whole,
    read_background,
    read_rows,
    refuse_sliced_background,
    warn_about_scales,
)

