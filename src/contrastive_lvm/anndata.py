"""Models of AnnData: two groups of observations in, latents and loadings written back.

Needs `pip install "contrastive-lvm[anndata]"`. What is written is where scanpy looks for it.

>>> import anndata, numpy as np, pandas as pd
>>> import contrastive_lvm as clvm
>>> data = clvm.datasets.make_subgroups(random_state=0)
>>> rows = np.concatenate([data.target, data.background])
>>> groups = ["stimulated"] * 400 + ["control"] * 400
>>> cells = anndata.AnnData(rows, obs=pd.DataFrame({"condition": groups}, map(str, range(800))))
>>> model = clvm.anndata.fit(
...     cells,
...     clvm.ContrastiveLVM(n_target=2, n_shared=10),
...     groupby="condition",
...     target="stimulated",
...     background="control",
... )
>>> cells.obsm["X_clvm_target"].shape, cells.varm["clvm_target_loadings"].shape
((800, 2), (30, 2))
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from contrastive_lvm.core.blocks import is_sparse
from contrastive_lvm.estimators.frames import NamedRows

__all__ = ["fit"]

ENTRIES = 1 << 22  # of the rows, or of covariances of their latents, that are looked at together
SHOWN = 8  # names of groups or layers in a message


class Groups(NamedTuple):
    """Which observations are target and background, (n,) bool."""

    target: np.ndarray
    background: np.ndarray


def fit(
    adata: Any,
    estimator: Any,
    *,
    groupby: str,
    target: Any,
    background: Any = None,
    layer: str | None = None,
    key_added: str = "clvm",
) -> Any:
    """Fit an estimator to two groups of observations, and write what it finds into `adata`.

    Parameters
    ----------
    adata : AnnData
        Changed in place; a view becomes a copy, as whenever something is written into one. Sparse
        values stay sparse. Of a backed file only the rows of the two groups are read as a whole.
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
    >>> obs = pd.DataFrame({"group": ["case"] * 400}, index=[f"cell{i}" for i in range(400)])
    >>> cells = anndata.AnnData(data.target, obs=obs)
    >>> model = clvm.anndata.fit(cells, clvm.PPCA(2), groupby="group", target="case")
    >>> sorted([*cells.obsm, *cells.varm, *cells.uns])
    ['X_clvm_target', 'clvm', 'clvm_target_loadings']
    """
    values, names = _values(adata, layer), _feature_names(adata)
    groups = _groups(adata, groupby, target, background)
    _check_key(key_added)
    sets = {"X": NamedRows(_taken(values, groups.target), names)}
    if groups.background.any() and _wants_background(estimator):
        sets["background"] = NamedRows(_taken(values, groups.background), names)
    estimator.fit(sets.pop("X"), **sets)
    found = _latents(estimator, values, names, groups.background)
    settings = {
        "groupby": groupby,
        "target": _words(target),
        "background": _words([] if background is None else background),
        "layer": "X" if layer is None else layer,
    }
    _write(adata, key_added, estimator, found, settings)
    return estimator


# What is asked for


def _values(adata: Any, layer: str | None) -> Any:
    """The matrix, as it is stored; what is backed stays where it is."""
    if not isinstance(adata, _package().AnnData):
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


def _package() -> Any:
    try:
        return import_module("anndata")
    except ImportError as error:
        raise ImportError(
            "contrastive_lvm.anndata needs anndata, which is not installed; "
            "pip install 'contrastive-lvm[anndata]'."
        ) from error


def _by_rows(values: Any) -> Any:
    """Columns of a file that is sorted by them are read once, not for every block of rows."""
    if getattr(values, "format", "") == "csc" and hasattr(values, "to_memory"):
        values = values.to_memory()
    return values.tocsr() if is_sparse(values) else values


def _feature_names(adata: Any) -> list[str]:
    names = [str(name) for name in adata.var_names]
    repeated = adata.var_names[adata.var_names.duplicated()]
    if len(repeated):
        raise ValueError(
            f"adata.var_names has {repeated[0]!r} more than once; call "
            "adata.var_names_make_unique() first."
        )
    return names


def _groups(adata: Any, groupby: str, target: Any, background: Any) -> Groups:
    if groupby not in adata.obs:
        raise ValueError(
            f"groupby={groupby!r} is no column of adata.obs, which has {_some(adata.obs)}."
        )
    column = adata.obs[groupby]
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


def _chosen(column: Any, name: str, wanted: Any) -> np.ndarray:
    """Observations of the wanted groups, all of which must be there."""
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


def _wants_background(estimator: Any) -> bool:
    return "background" in inspect.signature(estimator.fit).parameters


# Rows


def _taken(values: Any, chosen: np.ndarray) -> Any:
    """Rows in memory: dense, or sparse as they were. Files are read from front to back."""
    if isinstance(values, np.ndarray) or is_sparse(values):
        return _in_memory(values[np.flatnonzero(chosen)])
    parts = [
        _in_memory(values[block])[np.flatnonzero(chosen[block])]
        for block in _blocks(len(chosen), values.shape[1])
        if chosen[block].any()
    ]
    return sp.vstack(parts, format="csr") if is_sparse(parts[0]) else np.concatenate(parts)


def _in_memory(rows: Any) -> Any:
    rows = rows.compute() if hasattr(rows, "compute") else rows
    return rows.tocsr() if is_sparse(rows) else np.asarray(rows)


def _blocks(n_rows: int, width: int) -> Iterator[slice]:
    size = max(1, ENTRIES // width)
    for begin in range(0, n_rows, size):
        yield slice(begin, min(begin + size, n_rows))


class _Found(NamedTuple):
    """Latents of all observations."""

    target: np.ndarray
    shared: np.ndarray | None


def _latents(estimator: Any, values: Any, names: list[str], background: np.ndarray) -> _Found:
    """Block by block, so that neither rows nor covariances of latents are ever many."""
    k = getattr(estimator, "n_target_", 0) + getattr(estimator, "n_shared_", 0)
    parts = [
        _latents_of(estimator, NamedRows(_in_memory(values[block]), names), background[block])
        for block in _blocks(len(background), max(len(names), k**2))
    ]
    shared = [part.shared for part in parts if part.shared is not None]
    targets = np.concatenate([part.target for part in parts])
    return _Found(targets, np.concatenate(shared) if shared else None)


def _latents_of(estimator: Any, rows: NamedRows, background: np.ndarray) -> _Found:
    if not hasattr(estimator, "latents"):
        return _Found(np.asarray(estimator.transform(rows)), None)
    target = np.empty((len(background), estimator.n_target_))
    shared = np.empty((len(background), estimator.n_shared_))
    own = ~background
    if own.any():
        found = estimator.latents(rows._replace(values=rows.values[own]))
        target[own], shared[own] = found.target, found.shared
    if background.any():
        others = rows._replace(values=rows.values[background])
        target[background] = np.asarray(estimator.transform(others))
        shared[background] = estimator.latents(others, of="background").shared
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
    """An array with columns, or nothing, also where something was."""
    if array is not None and array.shape[1]:
        place[name] = np.ascontiguousarray(array)
    elif name in place:
        del place[name]


LEARNED = (
    *("target_variance_ratio_", "shared_variance_ratio_", "noise_variance_ratio_"),
    *("explained_variance_ratio_", "noise_variance_", "bound_", "bound_error_", "alpha_"),
    *("n_target_", "n_shared_", "n_iter_", "converged_"),
)


def _summary(estimator: Any) -> dict[str, Any]:
    """Settings and results in the words of h5ad."""
    parameters = estimator.get_params(deep=False)
    learned = {
        name.removesuffix("_"): getattr(estimator, name)
        for name in LEARNED
        if getattr(estimator, name, None) is not None
    }
    return {
        "estimator": type(estimator).__name__,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        **learned,
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, bool | int | float | str) else repr(value)
