"""Tables in NumPy files, Parquet, h5ad and folders of 10x Genomics."""

from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from contrastive_lvm.datasets.download import reading
from contrastive_lvm.datasets.tenx import read_10x
from contrastive_lvm.io.tables.from_frame import table_from_frame
from contrastive_lvm.io.tables.table import (
    Table,
    as_floats,
    numbered,
    refuse_empty,
    refuse_repeated,
)

FEATURES, ROWS = "feature_names", "row_names"  # arrays of an npz file
RAW = "raw"  # of an AnnData file
AGAIN = "save it again"  # the way out of a damaged file


def read_npy(path: Path) -> Table:
    """Read one array of rows and features."""
    with reading(path, "NumPy file", AGAIN):
        values = np.load(path, allow_pickle=False)
    return _table(_two_dimensional(values, path), path)


def read_npz(path: Path) -> Table:
    """Read arrays: the only matrix, or the one named X, and what describes its rows and columns.

    `feature_names` and `row_names` are what they say; other arrays with one value per
    row are annotations. What `scipy.sparse.save_npz` writes is read too.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "rows.npz"
    >>> np.savez(path, X=np.ones((2, 1)), feature_names=["age"], group=["case", "control"])
    >>> table = read_npz(path)
    >>> table.features, table.annotations["group"].tolist()
    (['age'], ['case', 'control'])
    """
    with (
        reading(path, "npz file of plain arrays", AGAIN),
        path.open("rb") as raw,
        np.load(raw, allow_pickle=False) as file,
    ):
        if "indptr" in file and "format" in file:
            return _table(sparse.csr_array(sparse.load_npz(path)), path)
        arrays = {name: file[name] for name in file.files}
    values = _two_dimensional(arrays.pop(_matrix_name(arrays, path)), path)
    features = _names(arrays.pop(FEATURES, None), values.shape[1], FEATURES, path)
    rows = _names(arrays.pop(ROWS, None), values.shape[0], ROWS, path)
    notes = {n: a for n, a in arrays.items() if a.shape == (values.shape[0],)}
    refuse_repeated([*(features or ()), *notes], str(path))
    return _table(values, path, features, rows, pd.DataFrame(notes, index=range(len(values))))


def _matrix_name(arrays: dict[str, Any], path: Path) -> str:
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    if "X" in matrices or len(matrices) == 1:
        return "X" if "X" in matrices else matrices[0]
    raise ValueError(
        f"{path} has {len(matrices)} arrays of two dimensions ({', '.join(matrices) or 'none'}); "
        "save the one to use under the name X."
    )


def _names(names: Any, length: int, what: str, path: Path) -> list[str] | None:
    if names is None:
        return None
    if names.shape != (length,):
        raise ValueError(
            f"{path} has an array {what} of shape {names.shape} for {length}; give one name each."
        )
    return [str(name) for name in names]


def read_parquet(
    path: Path, *, annotations: Collection[str] = (), features: Collection[str] | None = None
) -> Table:
    """Read a Parquet file; its index, if it is one of words, names the rows."""
    with reading(path, "Parquet file", AGAIN):
        frame = pd.read_parquet(path, engine="pyarrow")
    columns = [str(name) for name in frame.columns]
    refuse_repeated(columns, str(path))
    numbers = isinstance(frame.index, pd.RangeIndex)
    rows = None if numbers else [str(name) for name in frame.index]
    frame = frame.set_axis(columns, axis=1).reset_index(drop=True)
    others = set() if features is None else set(columns).difference(features)
    aside = {*annotations, *others}
    return table_from_frame(frame, str(path), aside, row_names=rows, typed=True)


def read_h5ad(path: Path, *, layer: str | None = None) -> Table:
    """Read the matrix X of an AnnData file, or a layer; its observations become annotations.

    The layer `raw` is the matrix that AnnData keeps under that name, with features of its own,
    unless a layer is called so.
    """
    anndata = import_anndata()
    with reading(path, "h5ad file", AGAIN):
        file = anndata.read_h5ad(path)
    held, names = _layer(file, layer, path)
    values: Any = held.tocsr() if hasattr(held, "tocsr") else np.asarray(held)
    features, rows = ([str(name) for name in axis] for axis in (names, file.obs_names))
    return _table(values, path, features, rows, pd.DataFrame(file.obs).reset_index(drop=True))


def _layer(file: Any, layer: str | None, path: Path) -> tuple[Any, Any]:
    """Return a matrix of an AnnData file and the names of its columns."""
    if layer in file.layers:
        return file.layers[layer], file.var_names
    if layer == RAW and file.raw is not None:
        return file.raw.X, file.raw.var_names
    known = [*file.layers, *([RAW] if file.raw is not None else [])]
    if layer not in (None, "X"):
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ValueError(f"--layer: {path} has no layer {layer!r}; {has}, beside X.")
    if file.X is None:
        way = f"choose --layer {known[0]}" if known else "store the values to model there"
        raise ValueError(f"{path} has no matrix X; {way}.")
    return file.X, file.var_names


def read_tenx(path: Path) -> Table:
    """Read a folder (or tar archive) of counts as 10x Genomics writes them."""
    cells = read_10x(path)
    return _table(cells.counts, path, cells.genes, cells.barcodes)


def _table(
    values: Any,
    path: Path,
    features: list[str] | None = None,
    row_names: list[str] | None = None,
    annotations: pd.DataFrame | None = None,
) -> Table:
    """Return a matrix, with the names and annotations that its file has."""
    n, d = values.shape
    refuse_empty(n, d, str(path))
    notes = pd.DataFrame(index=range(n)) if annotations is None else annotations
    named, names = features is not None, numbered(d) if features is None else features
    refuse_repeated(names, str(path))
    return Table(as_floats(values, str(path)), names, notes, row_names, named, str(path))


def _two_dimensional(values: Any, path: Path) -> Any:
    if values.ndim != 2:
        raise ValueError(
            f"{path} has an array of shape {values.shape}, but needs two dimensions, rows and "
            "features; reshape it."
        )
    return values


def import_anndata() -> Any:
    """Import the package, or say in one sentence what to install."""
    try:
        return import_module("anndata")
    except ImportError as error:
        raise ImportError(
            "AnnData objects and h5ad files need anndata, which is not installed; "
            "pip install 'contrastive-lvm[anndata]'."
        ) from error
