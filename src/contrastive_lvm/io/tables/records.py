"""Tables from lists of values: sheets of workbooks, and files with features in lines."""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from contrastive_lvm.io.tables.from_frame import table_from_frame
from contrastive_lvm.io.tables.header import ROW_NAMES, UNNAMED, name_columns, ragged
from contrastive_lvm.io.tables.layout import MISSING, Layout
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.linalg.matrices import is_sparse


def table_from_records(
    cells: Sequence[Sequence[object]],
    source: str,
    annotations: Collection[str],
    features: Collection[str] | None,
    layout: Layout,
    *,
    doubt: bool = False,
) -> Table:
    """Return the table of lines of values, the first of which names the columns.

    Examples
    --------
    >>> lines = [["gene", "s1", "s2"], ["A", "1,5", "2"], ["group", "case", "control"]]
    >>> table = table_from_records(lines, "genes.csv", (), None, Layout(transpose=True))
    >>> table.values.tolist(), table.row_names, table.annotations["group"].tolist()
    ([[1.5], [2.0]], ['s1', 's2'], ['case', 'control'])
    """
    if layout.transpose:
        cells = _transposed(cells, source)
    lines = [line for line in cells if any(value not in ("", None) for value in line)]
    first, *below = lines or [[]]
    names = name_columns([_text(value) for value in first], _sample(below), source)
    if layout.transpose and ROW_NAMES not in names:
        names = [ROW_NAMES, *names[1:]]
    frame = pd.DataFrame(below, columns=names, dtype=object)
    frame = frame.map(lambda value: np.nan if _text(value) in MISSING else value).infer_objects()
    rows = frame.pop(ROW_NAMES).map(_text).tolist() if ROW_NAMES in frame else None
    others = set() if features is None else set(names).difference(features)
    aside = {*annotations, *others, *(name for name in names if name.startswith(UNNAMED))}
    table = table_from_frame(frame, source, aside, row_names=rows, layout=layout, doubt=doubt)
    return without_empty(table)


def _transposed(cells: Sequence[Sequence[object]], source: str) -> list[tuple[object, ...]]:
    for number, line in enumerate(cells):
        if len(line) != len(cells[0]):
            raise ragged(source, len(line), number, len(cells[0]))
    return list(zip(*cells, strict=True))


def _sample(lines: Sequence[Sequence[object]]) -> list[list[str]]:
    return [[_text(value) for value in line] for line in lines[:100]]


def _text(value: object) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "" if value is None else str(value).strip()


def without_empty(table: Table) -> Table:
    """Leave out columns without a name, if they are empty, and rows without any value."""
    unnamed = [str(name) for name in table.annotations if str(name).startswith(UNNAMED)]
    for name in unnamed:
        if table.annotations[name].notna().any():
            raise ValueError(
                f"{table.source} has no name for column {name.removeprefix(UNNAMED)}; name every "
                "column, or leave lines above the names out with --skip-rows."
            )
    table = table._replace(annotations=table.annotations.drop(columns=unnamed))
    empty = _empty_rows(table)
    if not empty.any():
        return table
    said = f"without {empty.sum():,} rows that have no value"
    names = table.row_names
    return table._replace(
        values=table.values[~empty],
        annotations=table.annotations[~empty].reset_index(drop=True),
        row_names=None if names is None else [names[i] for i in np.flatnonzero(~empty)],
        remarks=(*table.remarks, said),
    )


def _empty_rows(table: Table) -> np.ndarray:
    """Return the rows that have no value at all, not even a name."""
    empty = np.zeros(table.n_rows, dtype=bool)
    if is_sparse(table.values):
        return empty
    for i in np.flatnonzero(np.isnan(table.values[:, 0])):
        named = table.row_names is not None and table.row_names[i] not in ("", "nan", "None")
        empty[i] = not named and bool(np.isnan(table.values[i]).all())
    if empty.any() and len(table.annotations.columns):
        empty &= table.annotations.isna().all(axis=1).to_numpy()
    return empty
