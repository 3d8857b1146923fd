"""Sheets of workbooks, as Excel and LibreOffice write them."""

import datetime as dt
from collections.abc import Collection
from importlib import import_module
from pathlib import Path
from typing import Any

from contrastive_lvm.io.tables.layout import Layout
from contrastive_lvm.io.tables.records import table_from_records
from contrastive_lvm.io.tables.table import Table, some

ENDINGS = (".xlsx", ".xlsm", ".xls", ".ods")


def read_excel(
    path: Path,
    *,
    annotations: Collection[str] = (),
    features: Collection[str] | None = None,
    layout: Layout | None = None,
) -> Table:
    """Read one sheet of a workbook, the first unless the layout names another."""
    layout = Layout() if layout is None else layout
    book = _workbook(path)
    known = list(book.sheet_names)
    if not known or (layout.sheet is not None and layout.sheet not in known):
        raise ValueError(f"--sheet: {path} has no sheet {layout.sheet!r}; it has {some(known)}.")
    sheet = layout.sheet or known[0]
    lines = book.get_sheet_by_name(sheet).to_python(skip_empty_area=False)
    cells = [
        [_value(cell) for cell in line]
        for number, line in enumerate(lines, start=1)
        if number not in layout.skip
    ]
    table = table_from_records(cells, f"{path}, sheet {sheet}", annotations, features, layout)
    said = f"its sheet {sheet!r} of {len(known)}" if len(known) > 1 else f"its sheet {sheet!r}"
    return table._replace(source=str(path), remarks=(said, *table.remarks))


def _workbook(path: Path) -> Any:
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
