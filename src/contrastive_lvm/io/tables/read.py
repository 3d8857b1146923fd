"""Read any file of the known formats as a table."""

import datetime as dt
import re
import warnings
import zipfile
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.atomic import refuse_holes, special_kind
from contrastive_lvm.io.tables.from_frame import table_from_records
from contrastive_lvm.io.tables.identifiers import is_identifier
from contrastive_lvm.io.tables.on_disk import chosen, writable
from contrastive_lvm.io.tables.read_csv import read_csv
from contrastive_lvm.io.tables.recognize import (
    SENTINELS,
    looks_measured,
    sentinel_in,
)
from contrastive_lvm.io.tables.table import Layout, Table, some
from contrastive_lvm.linalg.matrices import blocks, is_sparse

DAYS = (36_526, 51_500)  # 2000 to 2040 as days since 1900
MOST_ROWS = 2000  # that are searched for numbers that may stand for no value
BARE_FORMULA = re.compile(rb"</?f\b[^>]*>(?:<v\s*/>|<v></v>)?</c>")  # without a value
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
        The layout of the file.

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
    except (FileNotFoundError, PermissionError) as error:
        if error.errno is None:  # already a sentence of our own
            raise
        denied = "cannot be opened (permission denied); allow reading it, or copy it"
        why = denied if isinstance(error, PermissionError) else "does not exist; check its name"
        raise type(error)(f"{path} {why}.") from error
    known = [*table.annotations.columns, *table.features]
    for option, names in (("", annotations), ("--index: ", index), ("--drop: ", layout.drop)):
        absent = set(names).difference(known)
        if absent and (features is None or option):
            lying = absent & set(first_column(table))
            way = "its lines seem to be features: add --transpose" if lying else ""
            raise ValueError(
                f"{option}{path} has no column {some(sorted(absent))}; "
                f"{way or f'it has {some(known)}'}."
            )
    if aside.intersection(table.features):  # of a format that reads all numbers as features
        table = _set_aside(table, aside)
    codes = pd.to_numeric(pd.Series(layout.missing, dtype=object), errors="coerce").dropna()
    if len(codes) and not is_sparse(table.values):  # numbers that stand for no value
        values = writable(table.values)
        for _, rows in blocks(values):
            rows[np.isin(rows, codes.to_numpy(np.float64))] = np.nan
        table = table._replace(values=values)
    table = table._replace(remarks=(*table.remarks, *_doubts(table, aside)))
    return with_index(table, layout) if index or layout.drop else table


def _doubts(table: Table, aside: set[str]) -> list[str]:
    """Say which columns may mean something else, as far as their first rows tell."""
    found = []
    notes = table.annotations.columns.difference(list(aside), sort=False)
    for name in () if table.source.lower().endswith(".h5ad") else notes:  # no column is a feature
        words = table.annotations[name].dropna().head(200)
        digits = [str(word).strip() for word in words if isinstance(word, str)]
        texts = [word for word in digits if re.match("[^A-Za-z]{0,4}[0-9]", word)]
        if len(texts) >= 0.7 * len(words) and looks_measured(texts):
            found.append(
                f"{name} as text, because it says more than numbers ({texts[0]!r}); to use it, "
                "write numbers alone"
            )
    codes: dict[float, list[str]] = {}
    if table.named and not is_sparse(table.values):
        rows = np.asarray(table.values[:MOST_ROWS], dtype=np.float64)
        extremes = np.fmin.reduce(rows, axis=0), np.fmax.reduce(rows, axis=0)
        found.extend(_may_be_days(table, rows, *extremes))
        for j in np.flatnonzero(np.isin(extremes, SENTINELS).any(axis=0)):
            if (code := sentinel_in(rows[:, j])) is not None:
                codes.setdefault(code, []).append(table.features[j])
    for code, names in codes.items():
        found.append(
            f"{code:g} in {some(names)} as a number; if it stands for no value, add --na {code:g}"
        )
    return found


def _may_be_days(table: Table, rows: Array, lowest: Array, highest: Array) -> list[str]:
    """Say which columns may be dates, counted in days since 1900 as spreadsheets do."""
    near = np.flatnonzero((lowest >= DAYS[0]) & (highest <= DAYS[1]) & (lowest < highest))
    own = ((table.features[j], rows[~np.isnan(rows[:, j]), j]) for j in near)
    names = [name for name, x in own if (x == np.round(x)).all() and not is_identifier(name, x)]
    if not names:
        return []
    said = f"{some(names)} as a measurement, although its numbers may be dates, as days since 1900"
    return [f"{said}; if so, add --annotation {names[0]}"]


def _read(
    path: Path,
    annotations: Collection[str],
    features: Collection[str] | None,
    layer: str | None,
    layout: Layout,
) -> Table:
    if kind := special_kind(path):
        raise ValueError(f"{path} is a {kind}; save its contents to a file first.")
    if path.is_file():
        refuse_holes(path)
    if not path.is_dir() and TEXT.search(path.name):
        return read_csv(path, annotations=annotations, features=features, layout=layout)
    if not path.is_dir() and WORKBOOK.search(path.name):
        return _read_workbook(path, annotations, features, layout)
    from contrastive_lvm.io.tables.binary import read_binary  # a slow import

    said = {"--skip-rows": layout.skip, "--decimal": layout.decimal, "--sheet": layout.sheet}
    for option, given in (said | {"--transpose": layout.transpose}).items():
        if given:
            raise ValueError(f"{option} does not apply to {path}; leave it out.")
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
        found = book.get_sheet_by_name(sheet)
        lines = found.to_python(skip_empty_area=False)
        unknown = _formulas_without_values(path, sheet)
    if unknown:
        raise ValueError(
            f"{path}, sheet {sheet} has formulas without values (in {len(unknown)} cells, the "
            f"first is {unknown[0]}); open it in a spreadsheet program and save it."
        )
    for (top, left), (bottom, right) in found.merged_cell_ranges or ():
        for line in lines[top + 1 : bottom + 1]:  # a merged cell has its value in all of its rows
            line[left : right + 1] = lines[top][left : right + 1]
    cells = [
        [_value(cell) for cell in line]
        for number, line in enumerate(lines, start=1)
        if number not in layout.skip
    ]
    source = f"{path}, sheet {sheet}" + f" (of {some(known)}; see --sheet)" * (len(known) > 1)
    # A workbook knows its numbers, so that marks of numbers kept as text may mean anything.
    table = table_from_records(cells, source, annotations, features, layout, doubt=True)
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


def _formulas_without_values(path: Path, sheet: str) -> list[str]:
    """Return the cells with formulas whose values the file lacks.

    Programs that do not compute write them so; in older formats and others there are always values.
    """
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        parts = [name for name in archive.namelist() if name.startswith("xl/worksheets/sheet")]
        if not any(_has_bare_formula(archive, part) for part in parts):
            return []
    openpyxl = import_module("openpyxl")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts of a workbook that openpyxl leaves out
        book, values = (openpyxl.load_workbook(path, data_only=only) for only in (False, True))
    return [
        cell.coordinate
        for line in book[sheet].iter_rows()
        for cell in line
        if cell.data_type == "f" and values[sheet][cell.coordinate].value is None
    ]


def _has_bare_formula(archive: zipfile.ZipFile, part: str) -> bool:
    """Return whether a sheet has a cell that ends behind a formula."""
    before = b""
    with archive.open(part) as data:
        while block := data.read(1 << 20):
            if BARE_FORMULA.search(before + block):
                return True
            before = block[-1000:]
    return False


def _value(cell: object) -> object:
    """Return a number, a truth value or text; dates become text, and 1.0 becomes 1."""
    if isinstance(cell, dt.date | dt.time | dt.timedelta):
        return str(cell)
    whole = isinstance(cell, float) and cell.is_integer() and abs(cell) < 1e15
    return int(cell) if whole and isinstance(cell, float) else cell


def with_index(table: Table, layout: Layout) -> Table:
    """Take the names of rows from a column, and drop columns that are to be left out."""
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
    found = [_name_rows(t, named) if named.intersection(t.features) else t for t in tables]
    return [_with_doubtful_numbers(table) for table in found]


def _with_doubtful_numbers(table: Table) -> Table:
    """Mention one or two columns of whole numbers without repetition among other features."""
    if not table.named or is_sparse(table.values) or table.n_rows < 10:
        return table
    rows = np.asarray(table.values[:MOST_ROWS], dtype=np.float64)
    whole = np.flatnonzero((rows[:10] == np.round(rows[:10])).all(axis=0))
    if not len(whole) or len(whole) >= max(3, len(table.features) / 2):
        return table
    own = (rows[:, j][~np.isnan(rows[:, j])] for j in whole)
    alone = [len(np.unique(x)) == len(x) and bool((x == np.round(x)).all()) for x in own]
    names = [table.features[j] for j, is_alone in zip(whole, alone, strict=True) if is_alone]
    if not names:
        return table
    said = (
        f"{some(names)} as a measurement, although its whole numbers never repeat; if they name "
        f"rows, add --annotation {names[0]}"
    )
    return table._replace(remarks=(*table.remarks, said))


def _name_rows(table: Table, columns: set[str]) -> Table:
    named = [name for name in table.features if name in columns]
    found = _set_aside(table, named)
    if not found.features:
        raise ValueError(
            f"{table.source} has no numbers but those that seem to name its rows ({some(named)}); "
            "if they are measurements, add --features all."
        )
    whole = {
        name: np.int64 for name in named if np.isfinite(found.annotations[name]).all()
    }  # with a missing entry in one of two files it stays a float
    notes = found.annotations.astype(whole)
    return found._replace(annotations=notes, identifiers=(*found.identifiers, *named))


def _set_aside(table: Table, annotations: Collection[str]) -> Table:
    """Make features annotations."""
    aside = np.isin(table.features, list(annotations))
    names, columns = np.array(table.features, dtype=object), table.values[:, aside]
    dense = columns.toarray() if is_sparse(columns) else columns
    notes = table.annotations.assign(**dict(zip(names[aside], dense.T, strict=True)))
    features = names[~aside].tolist()
    values = chosen(table.values, columns=~aside)
    return table._replace(values=values, features=features, annotations=notes)


def looks_transposed(table: Table) -> bool:
    """Return whether the lines of a file seem to be features, as their first column says."""
    names, words = first_column(table), {"gene", "genes", "protein", "probe", "feature", "symbol"}
    if len(set(names)) < len(names) or len(names) < 2:
        return False
    head = "" if table.row_names is not None else str(table.annotations.columns[0])
    ensembl = sum(bool(re.match(r"ENS[A-Z]*[GTP][0-9]{6}", name)) for name in names)
    return bool(words & set(re.findall("[a-z]+", head.lower()))) or 2 * ensembl > len(names)


def first_column(table: Table) -> list[str]:
    """Return the first column of words, which names features if a file is to be transposed."""
    if table.row_names is not None or not len(table.annotations.columns):
        return table.row_names or []
    return [str(value) for value in table.annotations.iloc[:, 0]]
