"""Tables in NumPy files, Parquet, h5ad and folders of 10x Genomics."""

from collections.abc import Collection
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from contrastive_lvm.arrays import Dense, Matrix, Sparse
from contrastive_lvm.datasets.download import reading
from contrastive_lvm.datasets.tenx import read_10x
from contrastive_lvm.io.atomic import refuse_claim
from contrastive_lvm.io.tables.from_frame import table_from_frame
from contrastive_lvm.io.tables.on_disk import LARGE, filled
from contrastive_lvm.io.tables.table import (
    Table,
    as_floats,
    numbered,
    refuse_empty,
    refuse_repeated,
)
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.linalg.sparse_format import as_csr

if TYPE_CHECKING:
    from anndata import AnnData
    from h5py import Dataset, Group

BLOCK = 1 << 20  # entries that are read at a time where numbers stay on disk


def read_binary(
    path: Path, annotations: Collection[str], features: Collection[str] | None, layer: str | None
) -> Table:
    """Read a file or folder in the format that its name says."""
    if path.is_dir() or path.name.lower().endswith((".tar", ".tar.gz", ".tgz")):
        cells = read_10x(path)
        return _table(cells.counts, path, cells.genes, cells.barcodes)
    ending = path.suffix.lower()
    if ending not in (".parquet", ".pq", ".h5ad", ".npy", ".npz"):
        raise ValueError(
            f"{path} has an unknown ending; use .csv, .tsv, .csv.gz, .tsv.gz, .xlsx, "
            ".parquet, .npy, .npz, .h5ad, or a 10x folder."
        )
    path.open("rb").close()  # a missing file is reported in our own words
    if ending in (".parquet", ".pq"):
        return read_parquet(path, annotations, features)
    if ending == ".h5ad":
        return read_h5ad(path, layer)
    if ending == ".npz":
        return read_npz(path)
    with _reading(path, "NumPy file"):
        large = path.stat().st_size > LARGE
        values = np.load(path, allow_pickle=False, mmap_mode="r" if large else None)
    if values.ndim != 2:
        raise ValueError(
            f"{path} has an array of shape {values.shape}, but needs two dimensions, rows and "
            "features; reshape it."
        )
    # A map that is stored by columns would be read as a whole for every few rows.
    return _table(values if values.flags.c_contiguous else np.array(values), path)


def read_npz(path: Path) -> Table:
    """Read arrays: the only matrix, or the one named X, and what describes its rows and columns.

    `feature_names` and `row_names` name features and rows; other arrays with one value per row are
    annotations. What `scipy.sparse.save_npz` writes is read too.

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
        _reading(path, "npz file of plain arrays"),
        path.open("rb") as raw,
        np.load(raw, allow_pickle=False) as file,
    ):
        is_matrix = {"format", "shape", "data"} <= set(file.files)
        arrays = {} if is_matrix else {name: file[name] for name in file.files}
        stored = sparse.load_npz(path) if is_matrix else None
    if stored is not None:
        return _table(as_csr(stored, str(path)), path)
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    if "X" not in matrices and len(matrices) != 1:
        raise ValueError(
            f"{path} has {len(matrices)} arrays of two dimensions "
            f"({', '.join(matrices) or 'none'}); save the one to use under the name X."
        )
    values = arrays.pop("X" if "X" in matrices else matrices[0])
    n, d = values.shape
    features = _names(arrays.pop("feature_names", None), d, "feature_names", path)
    rows = _names(arrays.pop("row_names", None), n, "row_names", path)
    notes = {name: _text(a, path) for name, a in arrays.items() if a.shape == (n,)}
    refuse_repeated([*(features or ()), *notes], str(path))
    return _table(values, path, features, rows, pd.DataFrame(notes, index=range(len(values))))


def _names(names: np.ndarray | None, length: int, what: str, path: Path) -> list[str] | None:
    if names is None or names.shape == (length,):
        return None if names is None else [str(name) for name in _text(names, path)]
    raise ValueError(
        f"{path} has an array {what} of shape {names.shape}, but needs {length} names; add them."
    )


def _text(values: np.ndarray, path: Path) -> np.ndarray:
    """Return an array in which bytes are decoded to text."""
    with _reading(path, "npz file of words in UTF-8"):
        return np.char.decode(values, "utf-8") if values.dtype.kind == "S" else values


def read_parquet(
    path: Path, annotations: Collection[str], features: Collection[str] | None
) -> Table:
    """Read a Parquet file; its index, if it is one of words, names the rows."""
    from pyarrow import parquet

    with _reading(path, "Parquet file"):
        about = parquet.read_metadata(path)
    size = 8 * about.num_rows * about.num_columns
    refuse_claim(path, size, path.stat().st_size)
    names = about.schema.to_arrow_schema().names
    refuse_repeated(names, str(path))
    others = set() if features is None else set(names).difference(features)
    aside = {*annotations, *others}
    on_disk = _columns_of_numbers(about.schema.to_arrow_schema(), aside) if size > LARGE else []
    in_memory = [name for name in names if name not in set(on_disk)] if on_disk else None
    with _reading(path, "Parquet file"):
        frame = pd.read_parquet(path, engine="pyarrow", columns=in_memory)
    numbered = isinstance(frame.index, pd.RangeIndex)
    rows = None if numbered else [str(name) for name in frame.index]
    frame = frame.set_axis([str(name) for name in frame.columns], axis=1).reset_index(drop=True)
    if not on_disk:
        return table_from_frame(frame, str(path), aside, row_names=rows, typed=True)
    with _reading(path, "Parquet file"):
        values = _numbers_of_parquet(path, on_disk)
    return _table(values, path, on_disk, rows, frame)


def _columns_of_numbers(schema: Any, aside: Collection[str]) -> list[str]:
    """Return the columns of numbers, or none if others may have numbers too."""
    from pyarrow import types

    index = (schema.pandas_metadata or {}).get("index_columns", [])
    found = []
    for field in schema:
        if field.name in index or field.name in aside:
            continue
        if types.is_integer(field.type) or types.is_floating(field.type):
            found.append(field.name)
            continue
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        words = (types.is_string, types.is_large_string, types.is_boolean, types.is_temporal)
        if not any(is_of(kind) for is_of in words):
            return []
    return found


def _numbers_of_parquet(path: Path, columns: list[str]) -> Dense:
    """Read columns of numbers, some rows at a time, to a map on the disk."""
    from pyarrow import default_memory_pool, parquet, types

    with parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
        schema, n = file.schema_arrow, file.metadata.num_rows
        kinds = [schema.field(name).type for name in columns]
        single = all(types.is_floating(kind) and not types.is_float64(kind) for kind in kinds)
        dtype = np.float32 if single else np.float64
        batches = file.iter_batches(max(1, BLOCK // len(columns)), columns=columns)
        parts = (
            np.column_stack([own.to_numpy(zero_copy_only=False) for own in batch.select(columns)])
            for batch in batches
        )
        found = filled((n, len(columns)), dtype, parts)
    default_memory_pool().release_unused()
    return found


def read_h5ad(path: Path, layer: str | None) -> Table:
    """Read the matrix X of an AnnData file, or a layer; its observations become annotations.

    The layer `raw` is the matrix that AnnData keeps under that name, with features of its own,
    unless a layer is called so.
    """
    anndata = import_anndata()
    with _reading(path, "h5ad file"):
        claimed, stored = _sizes_in_h5(path)
    refuse_claim(path, claimed, stored)
    if claimed > LARGE:
        with _reading(path, "h5ad file"):
            found = _read_large_h5ad(path, layer)
        if found is not None:
            return found
    with _reading(path, "h5ad file"):
        file = anndata.read_h5ad(path)
    held, names = _layer(file, layer, path)
    values = as_csr(held, str(path)) if is_sparse(held) else np.asarray(held)
    features, rows = ([str(name) for name in axis] for axis in (names, file.obs_names))
    return _table(values, path, features, rows, pd.DataFrame(file.obs).reset_index(drop=True))


def _read_large_h5ad(path: Path, layer: str | None) -> Table | None:
    """Read one matrix and what describes it, a dense matrix to a map on the disk.

    None if the file has another form than those of today, or lacks the layer.
    """
    from anndata.io import read_elem

    with import_module("h5py").File(path) as file:
        if layer is not None and layer in file.get("layers", ()):
            place = f"layers/{layer}"
        else:
            place = {None: "X", "X": "X", "raw": "raw/X"}.get(layer, "")
        about = ("obs", "raw/var" if place == "raw/X" else "var")
        if place not in file or any(
            name not in file or file[name].attrs.get("encoding-type") != "dataframe"
            for name in about
        ):
            return None
        obs, var = (read_elem(file[name]) for name in about)
        held = file[place]
        if not hasattr(held, "shape"):
            values: Matrix = as_csr(read_elem(held), str(path))
        elif held.ndim != 2 or held.dtype.kind not in "fiub":
            return None
        else:
            single = held.dtype.kind == "f" and held.dtype.itemsize <= 4
            unit = held.chunks[0] if held.chunks else 1
            step = max(1, BLOCK // max(1, held.shape[1]) // unit) * unit
            parts = (held[start : start + step] for start in range(0, held.shape[0], step))
            values = filled(held.shape, np.float32 if single else np.float64, parts)
    features, rows = ([str(name) for name in axis] for axis in (var.index, obs.index))
    return _table(values, path, features, rows, obs.reset_index(drop=True))


def _sizes_in_h5(path: Path) -> tuple[int, int]:
    """Return the bytes that an HDF5 file claims, and those that it stores.

    A sparse matrix claims a pointer for each of its rows or columns, whatever its arrays hold.
    """
    h5py = import_module("h5py")
    with h5py.File(path) as file:
        items: list[Dataset | Group] = []
        file.visititems(lambda _, item: items.append(item))
        arrays = [item for item in items if hasattr(item, "nbytes")]
        sizes = [item.attrs["shape"] for item in items if "shape" in item.attrs]
        pointers = sum(8 * int(np.max(size, initial=0)) for size in sizes)
        stored = sum(array.id.get_storage_size() for array in arrays)
        return pointers + sum(array.nbytes for array in arrays), stored


def _layer(file: "AnnData", layer: str | None, path: Path) -> "tuple[Matrix, pd.Index[str]]":
    """Return a matrix of an AnnData file and the names of its columns."""
    if layer in file.layers:
        return file.layers[layer], file.var_names
    if layer == "raw" and file.raw is not None:
        return file.raw.X, file.raw.var_names
    known = [*filter(None, file.layers), *(["raw"] if file.raw is not None else [])]
    if layer not in (None, "X"):
        has = f"it has {', '.join(known)}" if known else "it has none"
        raise ValueError(f"--layer: {path} has no layer {layer!r}; {has}, beside X.")
    if file.X is None:
        way = f"choose --layer {known[0]}" if known else "store the values to model there"
        raise ValueError(f"{path} has no matrix X; {way}.")
    return file.X, file.var_names


def _table(
    values: np.ndarray | Sparse,
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


def _reading(path: Path, what: str) -> AbstractContextManager[None]:
    return reading(path, what, "save it again")


def import_anndata() -> ModuleType:
    """Import the package, or say in one sentence what to install."""
    try:
        return import_module("anndata")
    except ImportError as error:
        raise ImportError(
            "AnnData objects and h5ad files need anndata, which is not installed; "
            "pip install 'contrastive-lvm[anndata]'."
        ) from error
