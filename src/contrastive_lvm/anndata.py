"""Models of AnnData: two groups of observations in, latents and loadings written back.

Needs `pip install "contrastive-lvm[anndata]"`. What is written is where scanpy looks for it.
"""

import inspect
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.estimators.frames import NamedRows
from contrastive_lvm.estimators.input_rows import for_travel
from contrastive_lvm.io.tables.binary import import_anndata
from contrastive_lvm.io.tables.size_factor_column import positive_numbers
from contrastive_lvm.linalg.matrices import is_sparse, row_slices
from contrastive_lvm.rows.file_rows import LocalRows
from contrastive_lvm.rows.reader import UNCHECKED, is_out_of_core, open_rows
from contrastive_lvm.rows.row_subset import select_rows

__all__ = ["fit"]

ENTRIES = 1 << 22  # of the rows, or of covariances of their latents, that are looked at together
SHOWN = 8  # names of groups or layers in a message
LEARNED = (
    *("target_variance_ratio", "shared_variance_ratio", "noise_variance_ratio"),
    *("explained_variance_ratio", "noise_variance", "lower_bound", "lower_bound_error"),
    *("alpha", "n_target", "n_shared", "n_iter", "converged"),
)


class Groups(NamedTuple):
    """Which observations are target and background, and the size factors of all."""

    target: np.ndarray  # (n,) bool
    background: np.ndarray  # (n,) bool
    sizes: Array | None = None  # (n,)

    def at(self, rows: Any) -> "Groups":
        """Return the groups of some observations."""
        sizes = None if self.sizes is None else self.sizes[rows]
        return Groups(self.target[rows], self.background[rows], sizes)


def fit(
    adata: Any,
    estimator: Any,
    *,
    groupby: str,
    target: Any,
    background: Any = None,
    layer: str | None = None,
    key_added: str = "clvm",
    size_factors: str | None = None,
) -> Any:
    """Fit an estimator to two groups of observations, and write what it finds into `adata`.

    Parameters
    ----------
    adata : AnnData
        Changed in place; a view becomes a copy, as whenever something is written into one. Sparse
        values stay sparse. Values in a backed file and Dask arrays are read a block at a time,
        where the estimator does so (see the guide on data larger than memory); a backed matrix
        that is stored by columns (CSC) is read whole.
    estimator : ContrastiveLVM, ContrastiveVAE, ContrastivePCA, PPCA or VAE
        Fitted in place. `PPCA` and `VAE` see the target alone.
    groupby : str
        Column of `adata.obs` that says which group an observation belongs to.
    target, background : value or list of values
        Of that column. Observations with other values, or none, take no part in the fit;
        `background` may be left out where the estimator needs none.
    layer : str or None
        Layer to take in place of `adata.X`.
    key_added : str
        Begins all names that are written.
    size_factors : str or None
        Column of `adata.obs` with the sizes of rows of counts, in place of their totals.

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
    - `uns["clvm"]`: the estimator and its parameters, the groups, the layer, the bound and the
      shares of variance, as strings, numbers and arrays that h5ad can hold.

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
    groups = _groups(adata, groupby, target, background)
    groups = groups._replace(sizes=_sizes(adata, estimator, size_factors))
    _check_key(key_added)
    words: dict[str, Any] = {}
    if groups.background.any() and _takes(estimator, "background"):
        words["background"] = NamedRows(_taken(values, groups.background), names)
    if groups.sizes is not None:
        words["size_factors"] = groups.sizes[groups.target]
        if "background" in words:
            words["background_size_factors"] = groups.sizes[groups.background]
    estimator.fit(NamedRows(_taken(values, groups.target), names), **words)
    found = _latents(estimator, values, groups)
    settings = {
        "groupby": groupby,
        "target": _words(target),
        "background": _words([] if background is None else background),
        "layer": "X" if layer is None else layer,
    } | ({} if size_factors is None else {"size_factors": size_factors})
    _write(adata, key_added, estimator, found, settings)
    return estimator


# What is asked for


def _values(adata: Any, layer: str | None) -> Any:
    """Return the matrix as it is stored; what is backed stays where it is."""
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
    if layer is None:
        if adata.X is None:
            raise ValueError("adata has no matrix X; name one of its layers with layer=...")
        return _by_rows(adata.X)
    if layer not in adata.layers:
        raise ValueError(f"layer={layer!r} is none of adata.layers, {_some(adata.layers)}.")
    return _by_rows(adata.layers[layer])


def _by_rows(values: Any) -> Any:
    """Read a file that is sorted by columns once, not for every block of rows."""
    if getattr(values, "format", "") == "csc" and hasattr(values, "to_memory"):
        values = values.to_memory()
    return values.tocsr() if is_sparse(values) else values


def _feature_names(adata: Any) -> list[str]:
    repeated = adata.var_names[adata.var_names.duplicated()]
    if len(repeated):
        raise ValueError(
            f"adata.var_names has {repeated[0]!r} more than once; call "
            "adata.var_names_make_unique() first."
        )
    return [str(name) for name in adata.var_names]


def _groups(adata: Any, groupby: str, target: Any, background: Any) -> Groups:
    column = _column(adata, "groupby", groupby)
    first = _chosen(column, "target", target)
    if background is None:
        return Groups(first, np.zeros(len(first), dtype=bool))
    second = _chosen(column, "background", background)
    both = column[first & second]
    if len(both):
        raise ValueError(
            f"target={target!r} and background={background!r} both have {both.iloc[0]!r}; leave "
            "it out of one of them."
        )
    return Groups(first, second)


def _column(adata: Any, argument: str, name: str) -> Any:
    if name not in adata.obs:
        raise ValueError(
            f"{argument}={name!r} is no column of adata.obs, which has {_some(adata.obs)}."
        )
    return adata.obs[name]


def _chosen(column: Any, name: str, wanted: Any) -> np.ndarray:
    """Find the observations of the wanted groups, all of which must be there."""
    listed, present = _listed(wanted), pd.unique(column.dropna())
    if not listed:
        raise ValueError(f"{name}={wanted!r} names no group; give at least one.")
    for value in listed:
        if value not in list(present):
            raise ValueError(
                f"{name}={wanted!r} has {value!r}, which is no value of adata.obs"
                f"[{column.name!r}]; it has {_some(present)}."
            )
    return np.asarray(column.isin(listed).to_numpy(dtype=bool))


def _listed(wanted: Any) -> list[Any]:
    several = isinstance(wanted, list | tuple | set | frozenset | np.ndarray | pd.Index | pd.Series)
    return list(wanted) if several else [wanted]


def _some(names: Any) -> str:
    listed = [name.item() if isinstance(name, np.generic) else name for name in names]
    more = f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else ""
    return f"{listed[:SHOWN]}{more}" if listed else "none"


def _words(wanted: Any) -> np.ndarray:
    return np.array([str(value) for value in _listed(wanted)], dtype=object)


def _check_key(key: Any) -> None:
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(
            f"key_added={key!r} must be a word without '/', which h5ad cannot hold; use 'clvm'."
        )


def _takes(estimator: Any, word: str) -> bool:
    return word in inspect.signature(estimator.fit).parameters


def _sizes(adata: Any, estimator: Any, column: str | None) -> Array | None:
    """Return the size factors of all observations, since all of them are given latents."""
    if column is None:
        return None
    if not _takes(estimator, "size_factors"):
        raise ValueError(
            f"size_factors={column!r} is for models of counts, which {type(estimator).__name__} "
            "is none of, or finds them by itself; leave it out."
        )
    given = _column(adata, "size_factors", column)
    sizes, wrong = positive_numbers(given)
    if len(wrong):
        raise ValueError(
            f"size_factors={column!r} has {given.tolist()[wrong[0]]!r}, but a size is a positive "
            "number; drop such observations, or leave size_factors out."
        )
    return sizes


# Rows


def _taken(values: Any, chosen: np.ndarray) -> Any:
    """Return the rows of a group: in memory if all are, otherwise where they are."""
    if is_out_of_core(values):
        return select_rows(values, chosen)
    return values[np.flatnonzero(chosen)]


class _Found(NamedTuple):
    """Latents of observations."""

    target: Array
    shared: Array | None


def _latents(estimator: Any, values: Any, groups: Groups) -> _Found:
    """Find latents block by block, by the workers of Dask arrays, and bring them into memory."""
    outside = is_out_of_core(values)
    rows = open_rows(values, "adata", UNCHECKED) if outside else LocalRows(values, UNCHECKED)
    found = rows.map(partial(_latents_of_block, for_travel(estimator), groups))
    if hasattr(found[0], "dask"):
        found = import_module("dask").compute(*found)
    return _Found(*found)


def _latents_of_block(estimator: Any, groups: Groups, block: Matrix, at: slice) -> _Found:
    """Take few rows at a time, so that covariances of latents are never many."""
    k = getattr(estimator, "n_target_", 0) + getattr(estimator, "n_shared_", 0)
    here, width = groups.at(at), max(block.shape[1], k**2)
    parts = [
        _latents_of(estimator, block[some], here.at(some))
        for some in row_slices(len(here.background), width, elements=ENTRIES)
    ]
    shared = [part.shared for part in parts if part.shared is not None]
    targets = np.concatenate([part.target for part in parts])
    return _Found(targets, np.concatenate(shared) if shared else None)


def _latents_of(estimator: Any, rows: Matrix, groups: Groups) -> _Found:
    if not hasattr(estimator, "latents"):
        return _Found(np.asarray(estimator.transform(rows)), None)
    target = np.empty((rows.shape[0], estimator.n_target_))
    shared = np.empty((rows.shape[0], estimator.n_shared_))
    for of, chosen in (("target", ~groups.background), ("background", groups.background)):
        if not chosen.any():
            continue
        words = {} if groups.sizes is None else {"size_factors": groups.sizes[chosen]}
        found = estimator.latents(rows[chosen], of=of, **words)
        as_target = found.target
        if of == "background":  # placed as if they were of the target
            as_target = np.asarray(estimator.transform(rows[chosen], **words))
        target[chosen], shared[chosen] = as_target, found.shared
    return _Found(target, shared)


# What is written


def _write(adata: Any, key: str, estimator: Any, found: _Found, settings: dict[str, Any]) -> None:
    loadings = {
        "target": getattr(estimator, "target_components_", getattr(estimator, "components_", None)),
        "shared": getattr(estimator, "shared_components_", None),
    }
    for part, latents in zip(("target", "shared"), found, strict=True):
        _put(adata.obsm, f"X_{key}_{part}", latents)
        components = loadings[part]
        _put(adata.varm, f"{key}_{part}_loadings", None if components is None else components.T)
    adata.uns[key] = settings | _summary(estimator)


def _put(place: Any, name: str, array: np.ndarray | None) -> None:
    """Put an array with columns there, or remove what was there."""
    if array is not None and array.shape[1]:
        place[name] = np.ascontiguousarray(array)
    elif name in place:
        del place[name]


def _summary(estimator: Any) -> dict[str, Any]:
    """Return settings and results in types that h5ad can hold."""
    parameters = {
        name: value if isinstance(value, bool | int | float | str) else repr(value)
        for name, value in estimator.get_params(deep=False).items()
    }
    learned = {name: getattr(estimator, f"{name}_", None) for name in LEARNED}
    return {
        "estimator": type(estimator).__name__,
        "parameters": parameters,
        **{name: value for name, value in learned.items() if value is not None},
    }
