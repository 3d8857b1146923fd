"""Spreadsheets as people have them.

Each case draws a table, so that the truth is known, and writes it with up to four of the changes
that spreadsheets of many countries have: decimal commas, thousands separators, per cent signs,
words for missing entries, identifiers and dates beside measurements, text among numbers, titles and
units around the names, blank lines, other encodings, genes in lines. The features, the values and
the rows of both groups must be read as in the table, or the file must be refused in one sentence.
"""

import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from campaign.case import Report, generator, pick, require, require_sentence
from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.prepare import Sets, read_sets
from contrastive_lvm.io.tables.table import Layout

Rng = np.random.Generator
NAMES = ("IL6", "TNF-a", "Größe", "weight (kg)", "CD4+", "x1", "Ca2+", "ratio", "p53", "age")


class Sheet:
    """A table of text, and what it means."""

    def __init__(self, rng: Rng) -> None:
        n, d = int(rng.integers(12, 40)), int(rng.integers(2, 7))
        self.rng, self.n = rng, n
        self.names = [str(name) for name in rng.choice(NAMES, d, replace=False)]
        scales = 10.0 ** rng.integers(-1, 5, d)
        self.decimals = rng.integers(0, 5, d)
        drawn = rng.normal(1.0, 1.0, (n, d)) * scales
        self.values = np.array([np.round(drawn[:, j], self.decimals[j]) for j in range(d)]).T
        self.groups = np.array(["case", "control"])[rng.permutation(n) % 2].tolist()
        self.columns: list[tuple[str, list[str]]] = []  # those that are no features
        self.separator = str(rng.choice([",", ";", "\t"]))
        self.mark, self.thousands, self.missing = ".", "", ""
        self.percent = np.zeros(d, dtype=bool)
        self.above: list[str] = []
        self.layout = Layout()
        self.encoding, self.end, self.transpose, self.excel = "utf-8", "\n", False, False
        self.edits: list[Callable[[list[list[str]]], None]] = []  # of the cells
        self.refused = False  # whether reading it in any way would be wrong

    def text(self, i: int, j: int) -> str:
        """Return how a number is written."""
        if np.isnan(self.values[i, j]):
            return self.missing
        number = f"{self.values[i, j]:,.{self.decimals[j]}f}"
        number = number.replace(",", "\0").replace(".", self.mark).replace("\0", self.thousands)
        return number + "%" * bool(self.percent[j])

    def cells(self) -> list[list[str]]:
        """Return all cells, the names first."""
        own = [[self.text(i, j) for i in range(self.n)] for j in range(len(self.names))]
        columns = [("group", self.groups), *self.columns, *zip(self.names, own, strict=True)]
        columns.sort(key=lambda column: column[0] != "")  # names of rows stand first
        lines = [[name for name, _ in columns]]
        lines += [list(row) for row in zip(*(values for _, values in columns), strict=True)]
        for edit in self.edits:
            edit(lines)
        return [list(column) for column in zip(*lines, strict=True)] if self.transpose else lines

    def write(self, folder: Path) -> Path:
        """Write the sheet, and return where it is."""
        if self.excel:
            return self._write_workbook(folder / "rows.xlsx")
        lines = [self.separator.join(map(self._quoted, line)) for line in self.cells()]
        text = self.end.join([*self.above, *lines]) + self.end
        path = folder / ("rows.csv" if self.separator != "\t" else "rows.txt")
        path.write_bytes(text.encode(self.encoding, errors="replace"))
        return path

    def _quoted(self, cell: str) -> str:
        special = self.separator in cell or '"' in cell or "\n" in cell
        return '"' + cell.replace('"', '""') + '"' if special else cell

    def _write_workbook(self, path: Path) -> Path:
        book: Any = import_module("openpyxl").Workbook()
        sheet = book.active
        for line in [[title] for title in self.above] + self.cells():
            sheet.append([_typed(cell) for cell in line])
        book.save(path)
        return path


def _typed(cell: str) -> object:
    """Return a number where a spreadsheet has one; everything else is text."""
    try:
        return float(cell) if cell.strip() == cell and "_" not in cell and cell != "nan" else cell
    except ValueError:
        return cell or None


# --- changes ------------------------------------------------------------------------------------


def _decimal_commas(sheet: Sheet) -> None:
    sheet.mark = ","
    if sheet.rng.random() < 0.2:
        sheet.layout = sheet.layout._replace(decimal=",")


def _thousands(sheet: Sheet) -> None:
    marks = [" ", "'", "\u00a0", "." if sheet.mark == "," else ","]
    sheet.thousands = str(sheet.rng.choice(marks))


def _percent(sheet: Sheet) -> None:
    sheet.percent = sheet.rng.random(len(sheet.names)) < 0.5


WORDS = (
    "",
    "NA",
    "#N/A",
    "n.d.",
    "-",
    "?",
    "<LOD",
    "NaN",
    ".",
    "None",
    "nd",
    "-999",
    "fehlt",
    "n.a.",
)


def _missing(sheet: Sheet) -> None:
    sheet.missing = str(sheet.rng.choice(WORDS))
    holes = sheet.rng.random(sheet.values.shape) < 0.1
    holes[:4] = False
    sheet.values[holes] = np.nan
    if sheet.missing == "-999":  # a number: it is data unless it is named
        sheet.layout = sheet.layout._replace(missing=("-999",))
    elif sheet.rng.random() < 0.5:
        sheet.layout = sheet.layout._replace(missing=(sheet.missing,))


def _identifier(sheet: Sheet) -> None:
    numbers = sheet.rng.permutation(9000)[: sheet.n] + 1000
    kinds = {
        "sample": [str(i) for i in numbers],
        "Sample No.": [str(i) for i in numbers],
        "machine number": [str(i % 3 + 1) for i in range(sheet.n)],
        "PatientID": [str(i) for i in numbers],
        "barcode": [f"{i:08d}" for i in numbers],
        "row": [str(i) for i in range(1, sheet.n + 1)],
        "plate": [f"{i % 4:03d}" for i in range(sheet.n)],
        "code": [f"{i:05d}" for i in numbers],
        "Probennummer": [str(i) for i in numbers],
        "visit id": [f"{i // 3 + 10}{sheet.mark}{i % 3}" for i in range(sheet.n)],
        "": [f"r{i}" for i in range(sheet.n)],
    }
    name, values = pick(sheet.rng, kinds)
    place = 0 if name == "" else int(sheet.rng.integers(len(sheet.columns) + 1))
    sheet.columns.insert(place, (name, values))


def _dates(sheet: Sheet) -> None:
    days = sheet.rng.integers(1, 29, sheet.n)
    formats = ["2025-03-{:02d}", "{:02d}.03.2025", "202503{:02d}", "{:02d}/03/25", "{}. M\u00e4rz"]
    formats += ["2503{:02d}", "{:02d}0325", "{}.03", "45{:03d}", "45{:03d}.75"]
    pattern = str(sheet.rng.choice(formats))
    name = str(sheet.rng.choice(["when", "visit date", "Datum", "Entnahmedatum"]))
    sheet.columns.append((name, [pattern.format(day) for day in days]))


def _notes(sheet: Sheet) -> None:
    words = ["fine", "a, b", 'he said "no"', "-", "?", "None", "late; again", ""]
    sheet.columns.append(("note", [str(word) for word in sheet.rng.choice(words, sheet.n)]))


def _text_in_numbers(sheet: Sheet) -> None:
    word = str(
        sheet.rng.choice(["see note", "12.5 kg", "~3", "1.2.3", "12a", "high", "3-5", "TRUE"])
    )
    i, j = int(sheet.rng.integers(1, sheet.n + 1)), int(sheet.rng.integers(len(sheet.names)))

    def spoil(cells: list[list[str]]) -> None:
        cells[i][len(cells[0]) - len(sheet.names) + j] = word

    sheet.edits.append(spoil)
    sheet.refused = True


def _title(sheet: Sheet) -> None:
    sheet.above = ["Experiment 12, March", ""][: int(sheet.rng.integers(1, 3))]
    if sheet.rng.random() < 0.7:
        skip = tuple(range(1, len(sheet.above) + 1))
        sheet.layout = sheet.layout._replace(skip=skip)
    else:
        sheet.refused = True


def _units(sheet: Sheet) -> None:
    def spoil(cells: list[list[str]]) -> None:
        first = len(cells[0]) - len(sheet.names)
        cells.insert(1, [""] * first + ["mg/l"] * len(sheet.names))

    sheet.edits.append(spoil)
    if sheet.rng.random() < 0.7 and not sheet.above:
        sheet.layout = sheet.layout._replace(skip=(2,))
    else:
        sheet.refused = True


def _no_header(sheet: Sheet) -> None:
    def spoil(cells: list[list[str]]) -> None:
        del cells[0]

    sheet.edits.append(spoil)
    sheet.refused = True


def _empty_lines(sheet: Sheet) -> None:
    def spoil(cells: list[list[str]]) -> None:
        for _ in range(int(sheet.rng.integers(1, 4))):
            cells.insert(int(sheet.rng.integers(2, len(cells) + 1)), [""] * len(cells[0]))

    sheet.edits.append(spoil)


def _summary(sheet: Sheet) -> None:
    word = str(sheet.rng.choice(["Mean", "total", "Sum of all", "SD:", ""]))

    def spoil(cells: list[list[str]]) -> None:
        first = len(cells[0]) - len(sheet.names)
        sums = np.nansum(sheet.values, axis=0)
        own = [
            f"{x:.{k}f}".replace(".", sheet.mark) for x, k in zip(sums, sheet.decimals, strict=True)
        ]
        cells.append([word, *[""] * (first - 1), *own])

    sheet.edits.append(spoil)


def _beside(sheet: Sheet) -> None:
    def spoil(cells: list[list[str]]) -> None:
        for i, line in enumerate(cells):
            own = ["what", "value"] if i == 0 else [f"mean {i}", "7"] if i < 4 else ["", ""]
            line.extend(["", *own])

    sheet.edits.append(spoil)
    sheet.refused = True


def _empty_columns(sheet: Sheet) -> None:
    name = str(sheet.rng.choice(["", "spare"]))

    def spoil(cells: list[list[str]]) -> None:
        for i, line in enumerate(cells):
            line.append(name if i == 0 else "")

    sheet.edits.append(spoil)


def _blanks(sheet: Sheet) -> None:
    def spoil(cells: list[list[str]]) -> None:
        cells[0] = [f"{name} " if name else name for name in cells[0]]
        for line in cells[1:]:
            line[:] = [
                cell if not cell or sheet.rng.random() < 0.5 else f" {cell}" for cell in line
            ]

    sheet.edits.append(spoil)


def _labels(sheet: Sheet) -> None:
    where = [i for i, group in enumerate(sheet.groups) if group == "case"]
    odd = str(sheet.rng.choice(["Case", "case ", "CASE"]))
    sheet.groups[int(sheet.rng.choice(where))] = odd
    sheet.refused = True


def _encoding(sheet: Sheet) -> None:
    sheet.encoding = str(sheet.rng.choice(["utf-8-sig", "utf-16", "cp1252", "latin-1"]))
    sheet.end = str(sheet.rng.choice(["\n", "\r\n"]))


def _transposed(sheet: Sheet) -> None:
    sheet.transpose = True
    if not sheet.columns or sheet.columns[0][0] != "":
        sheet.columns.insert(0, ("", [f"r{i}" for i in range(sheet.n)]))
    if sheet.rng.random() < 0.7:
        sheet.layout = sheet.layout._replace(transpose=True)
    else:
        sheet.refused = True


def _workbook(sheet: Sheet) -> None:
    sheet.excel = True


CHANGES: dict[str, Callable[[Sheet], None]] = {
    "decimal commas": _decimal_commas,
    "thousands separators": _thousands,
    "per cent signs": _percent,
    "words for missing entries": _missing,
    "identifiers": _identifier,
    "dates": _dates,
    "notes": _notes,
    "text among numbers": _text_in_numbers,
    "a title above": _title,
    "a line of units": _units,
    "no names": _no_header,
    "empty lines": _empty_lines,
    "a summary below": _summary,
    "empty columns": _empty_columns,
    "a table beside": _beside,
    "blanks around values": _blanks,
    "labels nearly alike": _labels,
    "another encoding": _encoding,
    "features in lines": _transposed,
    "a workbook": _workbook,
}
ORDER = list(CHANGES)


# --- the invariant ------------------------------------------------------------------------------


def run(number: int) -> Report:
    """Write a sheet and read it again."""
    rng = generator("spreadsheets", number)
    sheet = Sheet(rng)
    drawn = {ORDER[number % len(ORDER)], *rng.choice(ORDER, int(rng.integers(0, 4)))}
    chosen = sorted(drawn, key=ORDER.index)
    for name in chosen:
        CHANGES[name](sheet)
    with tempfile.TemporaryDirectory() as folder:
        path = sheet.write(Path(folder))
        choice = Choice(by="group", target=["case"], layout=sheet.layout)
        try:
            sets = read_sets(path, None, choice)
        except (ValueError, TypeError, OSError) as error:
            require_sentence(error)
            return Report(ORDER[number % len(ORDER)], "refused")
    told = ", ".join(chosen)
    require(not sheet.refused, f"{told}: read although it cannot be read rightly")
    _require_truth(sheet, sets, told)
    return Report(ORDER[number % len(ORDER)], "answered")


def _require_truth(sheet: Sheet, sets: Sets, told: str) -> None:
    groups = np.array(sheet.groups)
    features = sets.preparation.features
    require(features == sheet.names, f"{told}: the features are {features}, not {sheet.names}")
    assert sets.background is not None
    for name, table in (("case", sets.target), ("control", sets.background)):
        truth = sheet.values[groups == name]
        require(table.n_rows == len(truth), f"{told}: {table.n_rows} rows, not {len(truth)}")
        same = np.allclose(np.asarray(table.values), truth, rtol=1e-12, atol=0.0, equal_nan=True)
        require(same, f"{told}: the values of {name} are others")
