"""Models of AnnData: two groups of observations in, latents and loadings written back.

Needs `pip install "contrastive-lvm[anndata]"`. What is written is where scanpy looks for it.
"""

import inspect
from collections.abc import Iterable, MutableMapping, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.estimators.covariates import EncodedRows
from contrastive_lvm.estimators.input_rows import NamedRows
from contrastive_lvm.io.tables.binary import import_anndata
from contrastive_lvm.io.tables.row_columns import positive_numbers
from contrastive_lvm.io.tables.table import Column, some
from contrastive_lvm.linalg.matrices import is_sparse, row_slices
from contrastive_lvm.linalg.sparse_format import as_csr
from contrastive_lvm.rows.file_rows import LocalRows
from contrastive_lvm.rows.reader import UNCHECKED, is_out_of_core, open_rows
from contrastive_lvm.rows.row_subset import select_rows

if TYPE_CHECKING:
    from anndata import AnnData

__all__ = ["fit"]

ENTRIES = 1 << 22  # of rows, or of covariances of their latents, that are in memory together


class Groups(NamedTuple):
    """The observations of both sets, and the size factors and covariates of all."""

    target: np.ndarray  # (n,) bool
    background: np.ndarray  # (n,) bool
    sizes: Array | None = None  # (n,)
    covariates: EncodedRows | None = None  # (n, C)

    def at(self, rows: slice) -> "Groups":
        """Return the groups of some observations."""
        sizes = None if self.sizes is None else self.sizes[rows]
        known = None if self.covariates is None else self.covariates[rows]
        return Groups(self.target[rows], self.background[rows], sizes, known)

    def facts(self) -> dict[str, Any]:
        """Return what is known of the rows, as methods take it."""
        given = {"size_factors": self.sizes, "covariates": self.covariates}
        return {name: value for name, value in given.items() if value is not None}


class LatentMeans(NamedTuple):
    """Posterior means of the latents of observations."""

    target: Array
    shared: Array | None  # None for estimators without a shared part


def fit(
    adata: "AnnData",
    estimator: Any,
    *,
    groupby: str,
    target: object = None,
    background: object = None,
    layer: str | None = None,
    key_added: str = "clvm",
    size_factors: str | None = None,
    replicates: str | None = None,
    covariates: Sequence[str] = (),
) -> Any:
    """Fit an estimator to groups of observations, and write what it finds into `adata`.

    Parameters
    ----------
    adata : AnnData
        Changed in place; a view becomes a copy, as whenever something is written into one. Sparse
        values stay sparse. Values in a backed file and Dask arrays are read a block at a time,
        where the estimator does so (see the guide on data larger than memory); a backed matrix
        that is stored by columns (CSC) is read whole.
    estimator : ContrastiveLVM, MultiSetLVM, ContrastiveVAE, ContrastivePCA, PPCA or VAE
        Fitted in place. `PPCA` and `VAE` see the target alone; the sets of a `MultiSetLVM` are all
        groups of the column.
    groupby : str
        Column of `adata.obs` that says which group an observation belongs to.
    target, background : value or list of values
        Of that column. Observations with other values, or none, take no part in the fit;
        `background` may be left out where the estimator needs none, and both with `MultiSetLVM`.
    layer : str or None
        Layer to take in place of `adata.X`.
    key_added : str
        Begins all names that are written.
    size_factors : str or None
        Column of `adata.obs` with the sizes of rows of counts, in place of their totals.
    replicates : str or None
        Column of `adata.obs` that names the replicate (donor, animal, run) of each observation,
        for `n_target="auto"`: whole replicates are then resampled.
    covariates : sequence of str
        Columns of `adata.obs` whose effects on the mean are estimated, such as age, sex or batch.
        Observations of no set whose values the fit has not seen, or that have none, are placed
        as if theirs were average.

    Returns
    -------
    estimator
        The one that was given, fitted; its `feature_names_in_` are `adata.var_names`.

    Notes
    -----
    Written for `key_added="clvm"`:

    - `obsm["X_clvm_target"]`: posterior means of the target latents (of the components or latents
      of estimators that have no others). Every observation has them, since scanpy's neighbours
      refuse NaN: those that are not of the target are placed as if they were, about the target's
      mean, so that they can be shown beside it.
    - `obsm["X_clvm_shared"]`: those of the shared latents, of the background's observations as
      rows of the background, of all others as rows of the target.
    - `varm["clvm_target_loadings"]`, `varm["clvm_shared_loadings"]`: the loadings, a column for
      each dimension; networks have none.
    - `obs["clvm_subgroup"]`, `obsm["clvm_subgroup_probabilities"]`: with
      `latent_prior=Mixture(...)`, the most probable subgroup of the target's observations (others
      have none) and the probabilities of all, as if all observations were of the target.
    - `uns["clvm"]`: the estimator and its parameters, the groups, the layer, the bound and the
      shares of variance, as strings, numbers and arrays that h5ad can hold.

    `MultiSetLVM` has `obsm["X_clvm_NAME"]` and `varm["clvm_NAME_loadings"]` for the block of each
    name (a "/" in it becomes "_"), and the share of each block in the variance of each group in
    `uns["clvm"]["variance_ratio"]`. Observations of groups that lack a block, or of no group, have
    zeros there.

    `ContrastivePCA`, `PPCA` and `VAE` have no shared part, and nothing is written for it. What an
    earlier call has written under the same key is removed first.

    Examples
    --------
    >>> import anndata, numpy as np, pandas as pd
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> rows = np.concatenate([data.target, data.background])
    >>> groups = ["stimulated"] * 400 + ["control"] * 400
    >>> cells = anndata.AnnData(rows, obs=pd.DataFrame({"condition": groups}, map(str, range(800))))
    >>> model = clvm.ContrastiveLVM(n_target=2, n_shared=10)
    >>> words = {"groupby": "condition", "target": "stimulated", "background": "control"}
    >>> model = clvm.anndata.fit(cells, model, **words)
    >>> cells.obsm["X_clvm_target"].shape, cells.varm["clvm_target_loadings"].shape
    ((800, 2), (30, 2))
    """
    values, names = _values(adata, layer), _feature_names(adata)
    if _takes(estimator, "sets"):
        _refuse_two_groups(target, background)
        columns = {"layer": layer, "size_factors": size_factors, "replicates": replicates}
        known = _covariates(adata, estimator, covariates)
        rows = NamedRows(values, names)
        return _fit_sets(adata, estimator, rows, groupby, key_added, columns, known)
    first, second = _groups(adata, groupby, target, background)
    groups = Groups(first, second, _sizes(adata, estimator, size_factors))
    _check_key(key_added)
    known = _covariates(adata, estimator, covariates)
    both = groups.background.any() and _takes(estimator, "background")
    facts = {"size_factors": groups.sizes, "covariates": known}
    options = _facts_of_sets(groups, facts, both=bool(both))
    if both:
        options["background"] = NamedRows(_rows_of(values, groups.background), names)
    options |= _replicates(adata, estimator, replicates, groups)
    estimator.fit(NamedRows(_rows_of(values, groups.target), names), **options)
    groups = groups._replace(covariates=_encoded(estimator, known, groups))
    settings: dict[str, object] = {
        "groupby": groupby,
        "target": _as_text(target),
        "background": _as_text([] if background is None else background),
        "layer": "X" if layer is None else layer,
    }
    about = {"size_factors": size_factors, "replicates": replicates, "covariates": covariates}
    settings |= {name: _plain_text(value) for name, value in about.items() if value}
    _write(adata, key_added, estimator, _latents(estimator, values, groups), settings)
    _write_subgroups(adata, key_added, estimator, values, groups)
    return estimator


# Any number of groups


def _refuse_two_groups(target: object, background: object) -> None:
    for name, value in (("target", target), ("background", background)):
        if value is not None:
            raise ValueError(
                f"{name}={value!r} has no meaning for an estimator of several sets, which are all "
                "groups of the column; leave it out."
            )


def _fit_sets(
    adata: "AnnData",
    estimator: Any,
    given: NamedRows,
    groupby: str,
    key: str,
    columns: dict[str, str | None],
    covariates: pd.DataFrame | None,
) -> Any:
    """Fit an estimator of several sets to all groups of a column, and write what it finds."""
    column = _column(adata, "groupby", groupby)
    known = column.notna().to_numpy(dtype=bool)
    if not known.any():
        raise ValueError(f"groupby={groupby!r} is empty for all observations; name another column.")
    labels = column.astype(str).to_numpy(dtype=object)
    _check_key(key)
    sizes = _sizes(adata, estimator, columns["size_factors"])
    options: dict[str, Any] = {} if sizes is None else {"size_factors": sizes[known]}
    if covariates is not None:
        options["covariates"] = covariates[known]
    own = dict(options)
    groups = Groups(known, np.zeros_like(known))
    options |= _replicates(adata, estimator, columns["replicates"], groups)
    rows = NamedRows(_rows_of(given.values, known), given.names)
    estimator.fit(rows, sets=labels[known], **options)
    found = estimator.latents(rows, sets=labels[known], **own).mean
    for name, latents in found.items():
        whole = np.zeros((len(known), latents.shape[1]))
        whole[known] = np.nan_to_num(np.asarray(latents))
        _put(adata.obsm, f"X_{key}_{name.replace('/', '_')}", whole)
        components = estimator.components_[name].T
        _put(adata.varm, f"{key}_{name.replace('/', '_')}_loadings", components)
    settings: dict[str, object] = {"groupby": groupby}
    settings |= {n: v for n, v in columns.items() if v is not None}
    if covariates is not None:
        settings["covariates"] = _as_text(list(covariates.columns))
    table = estimator.variance_ratio_
    shares = {name.replace("/", "_"): table[name].to_numpy() for name in table}
    about = {"sets": np.array(list(estimator.set_sizes_), dtype=object), "variance_ratio": shares}
    summary = {k: v for k, v in _summary(estimator).items() if k != "noise_variance"}
    adata.uns[key] = {"layer": "X", **settings, **about, **summary}
    return estimator


# Arguments


def _values(adata: "AnnData", layer: str | None) -> Any:
    """Return the matrix as it is stored; a backed one stays in its file."""
    if not isinstance(adata, import_anndata().AnnData):
        raise TypeError(
            f"adata is of type {type(adata).__name__}, not AnnData; make one with "
            "anndata.AnnData(X, obs=...), or call fit of the estimator."
        )
    if adata.isbacked and adata.is_view:
        raise ValueError(
            "adata is a view of a backed file, which nothing can be written into; pass "
            "adata.to_memory()."
        )
    if layer is None and adata.X is None:
        raise ValueError("adata has no matrix X; name one of its layers with layer=...")
    if layer is not None and layer not in adata.layers:
        raise ValueError(f"layer={layer!r} is not in adata.layers; it has {_few(adata.layers)}.")
    values = adata.X if layer is None else adata.layers[layer]
    if getattr(values, "format", "") == "csc" and hasattr(values, "to_memory"):
        values = values.to_memory()  # rows of a file that is sorted by columns are slow to read
    return as_csr(values, "adata") if is_sparse(values) else values


def _feature_names(adata: "AnnData") -> list[str]:
    repeated = adata.var_names[adata.var_names.duplicated()]
    if len(repeated):
        raise ValueError(
            f"adata.var_names has {repeated[0]!r} more than once; call "
            "adata.var_names_make_unique() first."
        )
    return [str(name) for name in adata.var_names]


def _groups(
    adata: "AnnData", groupby: str, target: object, background: object
) -> tuple[np.ndarray, np.ndarray]:
    """Return which observations are in either set."""
    column = _column(adata, "groupby", groupby)
    first = _members(column, "target", target)
    if background is None:
        return first, np.zeros(len(first), dtype=bool)
    second = _members(column, "background", background)
    both = column[first & second]
    if len(both):
        raise ValueError(
            f"target={target!r} and background={background!r} both have {both.iloc[0]!r}; leave "
            "it out of one of them."
        )
    return first, second


def _column(adata: "AnnData", name: str, column: str) -> Column:
    if column not in adata.obs:
        raise ValueError(
            f"{name}={column!r} is not a column of adata.obs; it has {_few(adata.obs)}."
        )
    found: Column = adata.obs[column]
    return found


def _members(column: Column, name: str, wanted: object) -> np.ndarray:
    """Return the observations of the wanted groups, all of which must exist."""
    groups, present = _as_list(wanted), pd.unique(column.dropna())
    if not groups:
        raise ValueError(f"{name}={wanted!r} names no group; give at least one.")
    for group in groups:
        if group not in list(present):
            raise ValueError(
                f"{name}={wanted!r} has {group!r}, which is not a value of adata.obs"
                f"[{column.name!r}]; it has {_few(present)}."
            )
    return np.asarray(column.isin(groups).to_numpy(dtype=bool))


def _as_list(wanted: Any) -> list[object]:
    several = isinstance(wanted, list | tuple | set | frozenset | np.ndarray | pd.Index | pd.Series)
    return list(wanted) if several else [wanted]


def _as_text(wanted: object) -> np.ndarray:
    return np.array([str(value) for value in _as_list(wanted)], dtype=object)


def _few(names: Iterable[object]) -> str:
    return some(names) or "none"


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(
            f"key_added={key!r} must be a word without '/', which h5ad cannot hold; use 'clvm'."
        )


def _takes(estimator: Any, argument: str) -> bool:
    return argument in inspect.signature(estimator.fit).parameters


def _sizes(adata: "AnnData", estimator: Any, column: str | None) -> Array | None:
    """Return the size factors of all observations, since all of them are given latents."""
    if column is None:
        return None
    if not _takes(estimator, "size_factors"):
        raise ValueError(
            f"size_factors={column!r} is for models of counts that take size factors, which "
            f"{type(estimator).__name__} does not; leave it out."
        )
    given = _column(adata, "size_factors", column)
    sizes, wrong = positive_numbers(given)
    if len(wrong):
        raise ValueError(
            f"size_factors={column!r} has {given.tolist()[wrong[0]]!r}, but a size is a positive "
            "number; drop such observations, or leave size_factors out."
        )
    return sizes


def _replicates(
    adata: "AnnData", estimator: Any, column: str | None, groups: Groups
) -> dict[str, object]:
    """Return the replicates of the observations of both sets, as `fit` takes them."""
    if column is None:
        return {}
    if not _takes(estimator, "groups"):
        raise ValueError(
            f"replicates={column!r} is for estimators whose fit takes groups, which that of "
            f"{type(estimator).__name__} does not; leave it out."
        )
    given = _column(adata, "replicates", column)
    unnamed = given.isna().to_numpy(dtype=bool) & (groups.target | groups.background)
    if unnamed.any():
        raise ValueError(
            f"replicates={column!r} is empty for observation {adata.obs_names[unnamed][0]!r}; name "
            "a replicate for every observation of both sets."
        )
    labels = given.astype(str).to_numpy(dtype=object)
    own: dict[str, object] = {"groups": labels[groups.target]}
    return own | (
        {"background_groups": labels[groups.background]} if groups.background.any() else {}
    )


def _facts_of_sets(groups: Groups, facts: dict[str, Any], *, both: bool) -> dict[str, Any]:
    """Return what is known of the observations of both sets, as `fit` takes it."""
    given = {name: values for name, values in facts.items() if values is not None}
    found = {name: values[groups.target] for name, values in given.items()}
    if both:
        found |= {f"background_{name}": own[groups.background] for name, own in given.items()}
    return found


def _plain_text(value: str | Sequence[str]) -> str | np.ndarray:
    return value if isinstance(value, str) else _as_text(value)


def _covariates(adata: "AnnData", estimator: Any, columns: Sequence[str]) -> pd.DataFrame | None:
    """Return the covariates of all observations."""
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        return None
    if not _takes(estimator, "covariates"):
        raise ValueError(
            f"covariates={names!r} are for linear models, which {type(estimator).__name__} is not; "
            "leave them out."
        )
    return pd.DataFrame({name: _column(adata, "covariates", name) for name in names})


def _encoded(estimator: Any, known: pd.DataFrame | None, groups: Groups) -> EncodedRows | None:
    """Return the covariates of all observations as the fit has encoded them.

    Those that it does not know, of observations of no set, are average.
    """
    if known is None:
        return None
    own = estimator._encoding
    usable = groups.target | groups.background | own.known_rows(known)
    values = np.zeros((len(known), len(own.center)))
    values[usable] = own.encode(known[usable], int(usable.sum()))
    return EncodedRows(values)


# Latents


def _rows_of(values: Any, mask: np.ndarray) -> Any:
    """Return the rows of a group; rows out of core stay there."""
    return select_rows(values, mask) if is_out_of_core(values) else values[np.flatnonzero(mask)]


def _latents(estimator: Any, values: Any, groups: Groups) -> LatentMeans:
    """Return latents in memory, computed chunk by chunk, by the workers of Dask arrays."""
    outside = is_out_of_core(values)
    rows = open_rows(values, "adata", UNCHECKED) if outside else LocalRows(values, UNCHECKED)
    found = rows.map(partial(_latents_of_chunk, estimator._without_rows(), groups))
    if hasattr(found[0], "dask"):
        found = import_module("dask").compute(*found)
    return LatentMeans(*found)


def _latents_of_chunk(estimator: Any, groups: Groups, chunk: Matrix, at: slice) -> LatentMeans:
    """Take few rows at a time, so that covariances of latents need little memory."""
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


# Results


def _write(
    adata: "AnnData", key: str, estimator: Any, found: LatentMeans, settings: dict[str, object]
) -> None:
    loadings = {
        "target": getattr(estimator, "target_components_", getattr(estimator, "components_", None)),
        "shared": getattr(estimator, "shared_components_", None),
    }
    for part, latents in zip(("target", "shared"), found, strict=True):
        _put(adata.obsm, f"X_{key}_{part}", latents)
        components = loadings[part]
        _put(adata.varm, f"{key}_{part}_loadings", None if components is None else components.T)
    adata.uns[key] = settings | _summary(estimator)


def _write_subgroups(
    adata: "AnnData", key: str, estimator: Any, values: Any, groups: Groups
) -> None:
    """Write subgroups, or remove those of an earlier call where the model has none."""
    column, place = f"{key}_subgroup", f"{key}_subgroup_probabilities"
    if getattr(estimator, "latent_prior", None) is None:
        _put(adata.obsm, place, None)
        if column in adata.obs:
            del adata.obs[column]
        return
    known = {} if groups.covariates is None else {"covariates": groups.covariates}
    found = np.asarray(estimator._without_rows().predict_proba(values, **known))
    _put(adata.obsm, place, found)
    labels = pd.Series(found.argmax(axis=1).astype(str), index=adata.obs_names)
    adata.obs[column] = labels.where(groups.target).astype("category")


def _put(place: MutableMapping[str, np.ndarray], name: str, array: np.ndarray | None) -> None:
    """Write an array that has columns; remove what an earlier call has written otherwise."""
    if array is not None and array.shape[1]:
        place[name] = np.ascontiguousarray(array)
    elif name in place:
        del place[name]


def _summary(estimator: Any) -> dict[str, object]:
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
