"""Read any file of the known formats as a table."""

import datetime as dt
import re
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.io.atomic import is_special, kind_of, refuse_holes
from contrastive_lvm.io.tables.from_frame import table_from_records
from contrastive_lvm.io.tables.layout import Layout
from contrastive_lvm.io.tables.read_csv import read_csv
from contrastive_lvm.io.tables.recognize import is_identifier
from contrastive_lvm.io.tables.table import Table, refuse_empty, some
from contrastive_lvm.linalg.matrices import is_sparse, row_slices

TEXT = re.compile(r"\.(csv|tsv|tab|txt)(\.gz)?$", re.IGNORECASE)
WORKBOOK = re.compile(r"\.(xlsx|xlsm|xls|ods)$", re.IGNORECASE)


def read_table(
    path: Path,
    *,
    annotations: Collection[str] = (),
    features: Collection[str] | None = None,
    layer: str | None = None,
    layout: Layout = Layout(),  # noqa: B008
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
    layout : Layout
        What is said about the layout of the file.

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
    index = () if layout.row_names is None else (layout.row_names,)
    aside = {*annotations, *index, *layout.drop}
    try:
        table = _read(path, aside, features, layer, layout)
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
    table = _set_aside(table, aside)
    codes = pd.to_numeric(pd.Series(layout.missing, dtype=object), errors="coerce").dropna()
    if len(codes) and not is_sparse(table.values):  # numbers that stand for no value
        for rows in row_slices(*table.values.shape):
            table.values[rows][np.isin(table.values[rows], codes.to_numpy(np.float64))] = np.nan
    return with_index(table, layout)


def _read(
    path: Path,
    annotations: Collection[str],
    features: Collection[str] | None,
    layer: str | None,
    layout: Layout,
) -> Table:
    if is_special(path):
        raise ValueError(f"{path} is a {kind_of(path)}; save what it gives in a file.")
    if path.is_file():
        refuse_holes(path)
    if not path.is_dir() and TEXT.search(path.name):
        return read_csv(path, annotations=annotations, features=features, layout=layout)
    if not path.is_dir() and WORKBOOK.search(path.name):
        return _read_workbook(path, annotations, features, layout)
    from contrastive_lvm.io.tables.binary import read_binary  # which imports much

    said = {"--skip-rows": layout.skip, "--decimal": layout.decimal, "--sheet": layout.sheet}
    for option, given in (said | {"--transpose": layout.transpose}).items():
        if given:
            raise ValueError(f"{option} has no meaning for {path}; leave it out.")
    return read_binary(path, annotations, features, layer)


def _read_workbook(
    path: Path, annotations: Collection[str], features: Collection[str] | None, layout: Layout
) -> Table:
    """Read one sheet of a workbook, the first unless the layout names another."""
    from contrastive_lvm.datasets.download import reading

    path.open("rb").close()  # whether it is there is said in our own words
    book = open_workbook(path)
    known = list(book.sheet_names)
    if not known or (layout.sheet is not None and layout.sheet not in known):
        raise ValueError(f"--sheet: {path} has no sheet {layout.sheet!r}; it has {some(known)}.")
    sheet = layout.sheet or known[0]
    with reading(path, "workbook", "save it again"):
        lines = book.get_sheet_by_name(sheet).to_python(skip_empty_area=False)
    cells = [
        [_value(cell) for cell in line]
        for number, line in enumerate(lines, start=1)
        if number not in layout.skip
    ]
    table = table_from_records(cells, f"{path}, sheet {sheet}", annotations, features, layout)
    said = f"its sheet {sheet!r} of {len(known)}" if len(known) > 1 else f"its sheet {sheet!r}"
    return table._replace(source=str(path), remarks=(said, *table.remarks))


def open_workbook(path: Path) -> Any:
    """Open a workbook, or refuse it in a sentence."""
    try:
        calamine = import_module("python_calamine")
    except ImportError as error:
        raise ImportError(
            f"{path} needs python-calamine, which is not installed; "
            "pip install 'contrastive-lvm[excel]', or save it as CSV."
        ) from error
    try:
        return calamine.CalamineWorkbook.from_path(str(path))
    except (calamine.CalamineError, OSError, ValueError) as error:
        raise ValueError(
            f"{path} is not a workbook that can be read ({str(error).rstrip('.')}); save it again, "
            "without a password, or as CSV."
        ) from error


def _value(cell: object) -> object:
    """Return a number, a truth value or text; dates become text, and 1.0 becomes 1."""
    if isinstance(cell, dt.date | dt.time | dt.timedelta):
        return str(cell)
    whole = isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15
    return int(cell) if whole and isinstance(cell, float) else cell


def with_index(table: Table, layout: Layout) -> Table:
    """Name the rows after a column, and drop what is to be left out."""
    names, notes = table.row_names, table.annotations
    if layout.row_names is not None:
        names = [str(name) for name in notes[layout.row_names]]
    gone = [name for name in (layout.row_names, *layout.drop) if name is not None]
    return table._replace(row_names=names, annotations=notes.drop(columns=gone))


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
    if not named:
        return table
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


def looks_transposed(table: Table) -> bool:
    """Return whether the lines of a file seem to be features, as their first column says."""
    names, words = _first_column(table), {"gene", "genes", "protein", "probe", "feature", "symbol"}
    if len(set(names)) < len(names) or len(names) < 2:
        return False
    head = "" if table.row_names is not None else str(table.annotations.columns[0])
    ensembl = sum(bool(re.match(r"ENS[A-Z]*[GTP][0-9]{6}", name)) for name in names)
    return bool(words & set(re.findall("[a-z]+", head.lower()))) or 2 * ensembl > len(names)


def _first_column(table: Table) -> list[str]:
    """Return the first column of words, which names features if a file is to be transposed."""
    if table.row_names is not None or not len(table.annotations.columns):
        return table.row_names or []
    return [str(value) for value in table.annotations.iloc[:, 0]]
