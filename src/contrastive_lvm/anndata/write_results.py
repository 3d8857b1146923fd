"""Writing latents, loadings and other results of a fit into AnnData."""

from collections.abc import MutableMapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.anndata.observations import Groups
from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.linalg.matrices import row_slices
from contrastive_lvm.rows.reader import UNCHECKED, LocalRows, is_out_of_core, open_rows
from contrastive_lvm.rows.row_subset import select_rows

if TYPE_CHECKING:
    from anndata import AnnData

ENTRIES = 1 << 22  # of rows, or of covariances of their latents, that are in memory together


class LatentMeans(NamedTuple):
    """Posterior means of the latents of observations."""

    target: Array
    shared: Array | None  # None for estimators without a shared part


def rows_of(values: Any, mask: np.ndarray) -> Any:
    """Return the rows of a group; rows out of core stay there."""
    return select_rows(values, mask) if is_out_of_core(values) else values[np.flatnonzero(mask)]


def latents_of(estimator: Any, values: Any, groups: Groups) -> LatentMeans:
    """Return latents in memory, computed chunk by chunk, by the workers of Dask arrays."""
    outside = is_out_of_core(values)
    rows = open_rows(values, "adata", UNCHECKED) if outside else LocalRows(values, UNCHECKED)
    found = rows.map(partial(_latents_of_chunk, estimator._without_rows(), groups))
    if hasattr(found[0], "dask"):
        found = import_module("dask").compute(*found)
    return LatentMeans(*found)


def _latents_of_chunk(estimator: Any, groups: Groups, chunk: Matrix, at: slice) -> LatentMeans:
    """Compute a few rows at a time, so that covariances of latents need little memory."""
    k = getattr(estimator, "n_target_", 0) + getattr(estimator, "n_shared_", 0)
    own, width = groups.at(at), max(chunk.shape[1], k**2)
    parts = [
        _latents_of_rows(estimator, chunk[rows], own.at(rows))
        for rows in row_slices(len(own.background), width, elements=ENTRIES)
    ]
    shared = [part.shared for part in parts if part.shared is not None]
    targets = np.concatenate([part.target for part in parts])
    return LatentMeans(targets, np.concatenate(shared) if shared else None)


def _latents_of_rows(estimator: Any, rows: Matrix, groups: Groups) -> LatentMeans:
    """Return target latents as if all rows were of the target, and shared latents as they are."""
    if not hasattr(estimator, "latents"):
        return LatentMeans(np.asarray(estimator.transform(rows)), None)
    found = estimator.latents(rows, **groups.facts())
    shared, background = np.array(found.shared), groups.background
    if background.any():
        own = {name: values[background] for name, values in groups.facts().items()}
        shared[background] = estimator.latents(rows[background], of="background", **own).shared
    return LatentMeans(found.target, shared)


def write_latents(
    adata: "AnnData", key: str, estimator: Any, found: LatentMeans, settings: dict[str, object]
) -> None:
    """Write latents, loadings and numbers, and remove those of an earlier call."""
    loadings = {
        "target": getattr(estimator, "target_components_", getattr(estimator, "components_", None)),
        "shared": getattr(estimator, "shared_components_", None),
    }
    for part, latents in zip(("target", "shared"), found, strict=True):
        put(adata.obsm, f"X_{key}_{part}", latents)
        components = loadings[part]
        put(adata.varm, f"{key}_{part}_loadings", None if components is None else components.T)
    adata.uns[key] = settings | summary_of(estimator)


def write_subgroups(
    adata: "AnnData", key: str, estimator: Any, values: Any, groups: Groups
) -> None:
    """Write subgroups, or remove those of an earlier call where the model has none."""
    column, place = f"{key}_subgroup", f"{key}_subgroup_probabilities"
    if getattr(estimator, "latent_prior", None) is None:
        put(adata.obsm, place, None)
        if column in adata.obs:
            del adata.obs[column]
        return
    known = {} if groups.covariates is None else {"covariates": groups.covariates}
    found = np.asarray(estimator._without_rows().predict_proba(values, **known))
    put(adata.obsm, place, found)
    labels = pd.Series(found.argmax(axis=1).astype(str), index=adata.obs_names)
    adata.obs[column] = labels.where(groups.target).astype("category")


def put(place: MutableMapping[str, np.ndarray], name: str, array: np.ndarray | None) -> None:
    """Write an array that has columns; otherwise remove the array of an earlier call."""
    if array is not None and array.shape[1]:
        place[name] = np.ascontiguousarray(array)
    elif name in place:
        del place[name]


def summary_of(estimator: Any) -> dict[str, object]:
    """Return parameters and results as values that h5ad can hold."""
    parameters = estimator.get_params(deep=False)
    names = "target_variance_ratio shared_variance_ratio noise_variance_ratio noise_variance alpha "
    names += "explained_variance_ratio lower_bound lower_bound_error n_target n_shared n_iter "
    names += "converged"
    found = {name: getattr(estimator, f"{name}_", None) for name in names.split()}
    learned = {name: value for name, value in found.items() if value is not None}
    return {
        "estimator": type(estimator).__name__,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        **learned,
    }


def _plain(value: object) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else repr(value)
