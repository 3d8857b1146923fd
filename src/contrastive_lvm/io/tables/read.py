"""Read any file of the known formats as a table."""

import re
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from contrastive_lvm.io.atomic import is_special, kind_of, refuse_holes
from contrastive_lvm.io.tables.layout import Layout
from contrastive_lvm.io.tables.read_csv import read_csv
from contrastive_lvm.io.tables.read_excel import ENDINGS, read_excel
from contrastive_lvm.io.tables.recognize import is_identifier
from contrastive_lvm.io.tables.table import Table, refuse_empty, some
from contrastive_lvm.linalg.matrices import is_sparse, row_slices


def read_table(
    path: Path,
    *,
    annotations: Collection[str] = (),
    features: Collection[str] | None = None,
    layer: str | None = None,
    layout: Layout | None = None,
) -> Table:
    r"""Read a file or a 10x folder; its name says which format it has.

    Parameters
    ----------
    path : Path
    annotations : collection of str
        Columns that are kept out of the numbers even if they hold numbers.
    features : collection of str, optional
        The only columns that are numbers for the model; others become annotations.
    layer : str, optional
        Which matrix of an h5ad file; other formats have one.
    layout : Layout, optional
        What is said about the layout of the file.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        If the file is damaged, empty, or not a table; the sentence names it.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.tsv"
    >>> _ = path.write_text("group\tage\ncase\t40\ncontrol\tNA\n")
    >>> read_table(path).values.tolist()
    [[40.0], [nan]]
    """
    layout = Layout() if layout is None else layout
    index = () if layout.row_names is None else (layout.row_names,)
    try:
        table = _read(path, {*annotations, *index, *layout.drop}, features, layer, layout)
    except FileNotFoundError as error:
        if error.errno is None:  # a sentence of our own
            raise
        raise FileNotFoundError(f"{path} is not there; check its name.") from error
    except PermissionError as error:
        raise PermissionError(
            f"{path} cannot be opened (permission denied); allow reading it, or copy it."
        ) from error
    known = [*table.annotations.columns, *table.features]
    for option, names in (("", annotations), ("--index: ", index), ("--drop: ", layout.drop)):
        absent = set(names).difference(known)
        if absent and (features is None or option):
            lying = absent & set(_first_column(table))
            way = "its lines seem to be features: add --transpose" if lying else ""
            raise ValueError(
                f"{option}{path} has no column {some(sorted(absent))}; "
                f"{way or f'it has {some(known)}'}."
            )
    table = _set_aside(table, {*annotations, *index, *layout.drop})
    return with_index(_without_codes(table, layout), layout)


def _first_column(table: Table) -> list[str]:
    """Return the first column of words, which names features if a file is to be transposed."""
    if table.row_names is not None or not len(table.annotations.columns):
        return table.row_names or []
    return [str(value) for value in table.annotations.iloc[:, 0]]


def looks_transposed(table: Table) -> bool:
    """Return whether the lines of a file seem to be features, as their first column says."""
    names, words = _first_column(table), {"gene", "genes", "protein", "probe", "feature", "symbol"}
    if len(set(names)) < len(names) or len(names) < 2:
        return False
    head = "" if table.row_names is not None else str(table.annotations.columns[0])
    ensembl = sum(bool(re.match(r"ENS[A-Z]*[GTP][0-9]{6}", name)) for name in names)
    return bool(words & set(re.findall("[a-z]+", head.lower()))) or 2 * ensembl > len(names)


def _without_codes(table: Table, layout: Layout) -> Table:
    """Make numbers that stand for no value missing entries."""
    numbers = pd.to_numeric(pd.Series(layout.missing, dtype=object), errors="coerce").dropna()
    if numbers.empty or is_sparse(table.values):
        return table
    values = table.values
    for rows in row_slices(*values.shape):
        values[rows][np.isin(values[rows], numbers.to_numpy(np.float64))] = np.nan
    return table


def with_index(table: Table, layout: Layout) -> Table:
    """Name the rows after a column, and drop what is to be left out."""
    names, notes = table.row_names, table.annotations
    if layout.row_names is not None:
        names = [str(name) for name in notes[layout.row_names]]
    gone = [name for name in (layout.row_names, *layout.drop) if name is not None]
    return table._replace(row_names=names, annotations=notes.drop(columns=gone))


def _read(
    path: Path,
    annotations: Collection[str],
    features: Collection[str] | None,
    layer: str | None,
    layout: Layout,
) -> Table:
    name = path.name.lower()
    if is_special(path):
        raise ValueError(f"{path} is a {kind_of(path)}; save what it gives in a file.")
    if path.is_file():
        refuse_holes(path)
    if name.removesuffix(".gz").endswith((".csv", ".tsv", ".tab", ".txt")) and not path.is_dir():
        return read_csv(path, annotations=annotations, features=features, layout=layout)
    if name.endswith(ENDINGS) and not path.is_dir():
        path.open("rb").close()  # whether it is there is said in our own words
        return read_excel(path, annotations=annotations, features=features, layout=layout)
    _refuse_layout(path, layout)
    from contrastive_lvm.io.tables.binary import (  # only these formats need what it imports
        read_h5ad,
        read_npy,
        read_npz,
        read_parquet,
        read_tenx,
    )

    if path.is_dir() or name.endswith((".tar", ".tar.gz", ".tgz")):
        return read_tenx(path)
    readers: dict[str, Callable[[Path], Table]] = {
        ".parquet": partial(read_parquet, annotations=annotations, features=features),
        ".h5ad": partial(read_h5ad, layer=layer),
        ".npy": read_npy,
        ".npz": read_npz,
    }
    ending = path.suffix.lower().replace(".pq", ".parquet")
    if ending not in readers:
        raise ValueError(
            f"{path} has an ending that is not known; use .csv, .tsv, .csv.gz, .tsv.gz, .xlsx, "
            ".parquet, .npy, .npz, .h5ad, or a 10x folder."
        )
    path.open("rb").close()  # whether it is there is said in our own words
    return readers[ending](path)


def _refuse_layout(path: Path, layout: Layout) -> None:
    """Refuse what can only be said about text and workbooks."""
    said = {
        "--skip-rows": bool(layout.skip),
        "--decimal": layout.decimal is not None,
        "--transpose": layout.transpose,
        "--sheet": layout.sheet is not None,
    }
    for option, given in said.items():
        if given:
            raise ValueError(f"{option} has no meaning for {path}; leave it out.")


def without_identifiers(*tables: Table) -> list[Table]:
    """Make numbers that name rows annotations, in all tables if one has such a column."""
    named = {
        name
        for table in tables
        if table.named and not is_sparse(table.values)
        for name, values in zip(table.features, table.values.T, strict=True)
        if is_identifier(name, values)
    }
    return [_name_rows(table, [n for n in table.features if n in named]) for table in tables]


def _name_rows(table: Table, named: list[str]) -> Table:
    found = _set_aside(table, named)
    refuse_empty(found.n_rows, len(found.features), found.source)
    whole = {
        name: np.int64 for name in named if np.isfinite(found.annotations[name]).all()
    }  # a missing entry in one of two files keeps it a float
    notes = found.annotations.astype(whole)
    return found._replace(annotations=notes, identifiers=(*found.identifiers, *named))


def _set_aside(table: Table, annotations: Collection[str]) -> Table:
    """Make features annotations, in formats that read all columns as features."""
    aside = np.isin(table.features, list(annotations))
    if not aside.any():
        return table
    names, columns = np.array(table.features, dtype=object), table.values[:, aside]
    dense = columns.toarray() if is_sparse(columns) else columns
    notes = table.annotations.assign(**dict(zip(names[aside], dense.T, strict=True)))
    features = names[~aside].tolist()
    return table._replace(values=table.values[:, ~aside], features=features, annotations=notes)
