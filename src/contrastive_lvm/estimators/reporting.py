"""The `report` methods of estimators of a target and a background, and of several sets."""

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from contrastive_lvm.arrays import Covariates, RowLabels
from contrastive_lvm.estimators.covariates import encode_rows
from contrastive_lvm.estimators.frames import RowNumbers
from contrastive_lvm.io.atomic import page_destination, write_text_atomically

if TYPE_CHECKING:
    from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
    from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE
    from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM


def report(
    self: "ContrastiveLVM | ContrastiveVAE",
    path: str | PathLike[str],
    X: Any,
    *,
    background: Any = None,
    labels: object = None,
    background_labels: object = None,
    size_factors: RowNumbers = None,
    background_size_factors: RowNumbers = None,
    groups: RowLabels = None,
    background_groups: RowLabels = None,
    covariates: Covariates = None,
    background_covariates: Covariates = None,
    title: str = "What the target has beyond the background",
) -> Path:
    """Write an HTML report: linked views of the rows, loadings, diagnostics and numbers.

    The report is a single file and works offline. If a set has more than 100,000 rows, the views
    show a random sample of 100,000.

    Parameters
    ----------
    path : path
        The file, replaced if it exists.
    X, background : array-like, frame or sparse matrix
        Rows of both sets. The columns of a frame name the features, and its index names the rows,
        unless it only counts them.
    labels, background_labels : array-like, mapping or frame, optional
        One annotation of each row, or several by name, for colour, hover and search.
    size_factors, background_size_factors : array-like, optional
        Size factors of rows of counts, if the model was fitted with size factors of your own.
    groups, background_groups : array-like, optional
        The replicate (donor, animal, run) of each row, which the test on the page respects.
    covariates, background_covariates : frames or array-like, optional
        As in `fit`, if the model was fitted with covariates.
    title : str

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(n_shared=10).fit(data.target, background=data.background)
    >>> page = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> page = model.report(
    ...     page, data.target, background=data.background, labels=data.target_labels
    ... )
    >>> page.stat().st_size < 1_000_000
    True
    """
    from contrastive_lvm.report.write_report import GivenRows, write_report

    check_is_fitted(self)
    check_covariates(self, covariates, X)
    target = GivenRows(X, labels, size_factors, groups, covariates=covariates)
    other = (background, background_labels, background_size_factors, background_groups)
    second = GivenRows(*other, "background_", covariates=background_covariates)
    return write_report(self, path, target, second, title=title)


def report_of_sets(
    self: "MultiSetLVM",
    path: str | PathLike[str],
    X: Any,
    *,
    sets: RowLabels,
    groups: RowLabels = None,
    size_factors: RowNumbers = None,
    covariates: Covariates = None,
    title: str = "What some sets have beyond others",
) -> Path:
    """Write an HTML report: tests of the blocks, shares, rows, loadings and numbers.

    The report is a single file, works offline, and contains no scripts.

    Parameters
    ----------
    path : path
        The file, replaced if it exists.
    X, sets, groups, size_factors, covariates
        The rows of the fit, and what belongs to them, as in `fit`.
    title : str

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_multi_set(random_state=0)
    >>> model = clvm.MultiSetLVM("auto").fit(data.rows, sets=data.sets)
    >>> page = pathlib.Path(tempfile.mkdtemp()) / "report.html"
    >>> model.report(page, data.rows, sets=data.sets).stat().st_size < 1_000_000
    True
    """
    from contrastive_lvm.report.block_page import RowsOfSets, block_page

    check_is_fitted(self)
    place = page_destination(path)
    facts = {"size_factors": size_factors, "covariates": covariates}
    rows = RowsOfSets(X, sets, groups, {k: v for k, v in facts.items() if v is not None})
    return write_text_atomically(place, block_page(self, rows, title=title))


def check_covariates(model: Any, covariates: Covariates, X: Any) -> None:
    """Refuse covariates that a model was not fitted with, or their absence."""
    encode_rows(model._encoding, covariates, np.shape(X)[0])
