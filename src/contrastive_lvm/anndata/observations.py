"""Observations of AnnData that take part in a fit, and columns that describe them."""

import inspect
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array, Column
from contrastive_lvm.estimators.covariates import EncodedRows
from contrastive_lvm.io.tables.binary import import_anndata
from contrastive_lvm.io.tables.row_columns import positive_numbers
from contrastive_lvm.io.tables.table import some
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.linalg.sparse_format import as_csr

if TYPE_CHECKING:
    from anndata import AnnData


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
        """Return size factors and covariates of rows, as keyword arguments of methods."""
        given = {"size_factors": self.sizes, "covariates": self.covariates}
        return {name: value for name, value in given.items() if value is not None}


def matrix_of(adata: "AnnData", layer: str | None) -> Any:
    """Return the matrix as it is stored; a backed one stays in its file."""
    if not isinstance(adata, import_anndata().AnnData):
        raise TypeError(
            f"adata is of type {type(adata).__name__}, not AnnData; make one with "
            "anndata.AnnData(X, obs=...), or call fit of the estimator."
        )
    if adata.isbacked and adata.is_view:
        raise ValueError(
            "adata is a view of a backed file, which cannot be written to; pass adata.to_memory()."
        )
    if layer is None and adata.X is None:
        raise ValueError("adata has no matrix X; name one of its layers with layer=...")
    if layer is not None and layer not in adata.layers:
        raise ValueError(f"layer={layer!r} is not in adata.layers; it has {_few(adata.layers)}.")
    values = adata.X if layer is None else adata.layers[layer]
    if getattr(values, "format", "") == "csc" and hasattr(values, "to_memory"):
        values = values.to_memory()  # rows of a file that is sorted by columns are slow to read
    return as_csr(values, "adata") if is_sparse(values) else values


def feature_names_of(adata: "AnnData") -> list[str]:
    """Return the names of the features, which must be unique."""
    repeated = adata.var_names[adata.var_names.duplicated()]
    if len(repeated):
        raise ValueError(
            f"adata.var_names has {repeated[0]!r} more than once; call "
            "adata.var_names_make_unique() first."
        )
    return [str(name) for name in adata.var_names]


def two_groups(
    adata: "AnnData", groupby: str, target: object, background: object
) -> tuple[np.ndarray, np.ndarray]:
    """Return which observations are in either set."""
    column = obs_column(adata, "groupby", groupby)
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


def obs_column(adata: "AnnData", name: str, column: str) -> Column:
    """Return a column of `adata.obs`; `name` is the argument that names it."""
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


def as_text(wanted: object) -> np.ndarray:
    """Return one value or several as an array of text, which h5ad can hold."""
    return np.array([str(value) for value in _as_list(wanted)], dtype=object)


def _few(names: Iterable[object]) -> str:
    return some(names) or "none"


def check_key(key: object) -> None:
    """Refuse a key that h5ad cannot hold."""
    if not isinstance(key, str) or not key or "/" in key:
        raise ValueError(
            f"key_added={key!r} must be a word without '/', which h5ad files cannot contain; use "
            "'clvm'."
        )


def takes(estimator: Any, argument: str) -> bool:
    """Tell whether the `fit` of an estimator has an argument."""
    return argument in inspect.signature(estimator.fit).parameters


def sizes_of(adata: "AnnData", estimator: Any, column: str | None) -> Array | None:
    """Return the size factors of all observations, since all of them get latents."""
    if column is None:
        return None
    if not takes(estimator, "size_factors"):
        raise ValueError(
            f"size_factors={column!r} needs a model of counts with size factors, which "
            f"{type(estimator).__name__} is not; leave it out."
        )
    given = obs_column(adata, "size_factors", column)
    sizes, wrong = positive_numbers(given)
    if len(wrong):
        raise ValueError(
            f"size_factors={column!r} has {given.tolist()[wrong[0]]!r}, but a size factor must be "
            "a positive number; drop such observations, or leave size_factors out."
        )
    return sizes


def replicates_of(
    adata: "AnnData", estimator: Any, column: str | None, groups: Groups
) -> dict[str, object]:
    """Return the replicates of the observations of both sets, as `fit` takes them."""
    if column is None:
        return {}
    if not takes(estimator, "groups"):
        raise ValueError(
            f"replicates={column!r} needs an estimator whose fit takes groups, but the fit of "
            f"{type(estimator).__name__} does not; leave it out."
        )
    given = obs_column(adata, "replicates", column)
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


def facts_of_sets(groups: Groups, facts: dict[str, Any], *, both: bool) -> dict[str, Any]:
    """Return size factors and covariates of both sets, as keyword arguments of `fit`."""
    given = {name: values for name, values in facts.items() if values is not None}
    found = {name: values[groups.target] for name, values in given.items()}
    if both:
        found |= {f"background_{name}": own[groups.background] for name, own in given.items()}
    return found


def covariates_of(adata: "AnnData", estimator: Any, columns: Sequence[str]) -> pd.DataFrame | None:
    """Return the covariates of all observations."""
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        return None
    if not takes(estimator, "covariates"):
        raise ValueError(
            f"covariates={names!r} do not apply to {type(estimator).__name__}; use "
            "ContrastiveLVM or ContrastiveVAE."
        )
    return pd.DataFrame({name: obs_column(adata, "covariates", name) for name in names})


def encoded_covariates(
    estimator: Any, known: pd.DataFrame | None, groups: Groups
) -> EncodedRows | None:
    """Return the covariates of all observations as the fit has encoded them.

    For observations of no set, unknown values are replaced by the average.
    """
    if known is None:
        return None
    own = estimator._encoding
    usable = groups.target | groups.background | own.known_rows(known)
    values = np.zeros((len(known), len(own.center)))
    values[usable] = own.encode(known[usable], int(usable.sum()))
    return EncodedRows(values)
