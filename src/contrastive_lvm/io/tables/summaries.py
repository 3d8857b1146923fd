"""Rows of a spreadsheet that are no samples: footnotes, and sums and means of other rows.

Words for a summary are many and in many languages, so the numbers themselves are asked, too: a row
that is the sum or the mean of rows above it, in several columns and to the last digit, is none.
"""

import re
from collections.abc import Iterator
from functools import reduce
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.arrays import Array
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.linalg.matrices import is_sparse

Mask = npt.NDArray[np.bool_]

NO_NAME = frozenset({"", "nan", "None"})  # of a row whose name is missing
SUMMARIES = {
    "average", "avg", "cv", "durchschnitt", "ecart type", "gemiddelde", "gesamt", "grand total",
    "max", "maximum", "mean", "media", "median", "min", "minimum", "mittel", "mittelwert",
    "moyenne", "mw", "promedio", "sd", "se", "sem", "somme", "stabw", "standardabweichung", "std",
    "std dev", "stdev", "subtotal", "sum", "summe", "total", "totals", "totaux", "variance",
    "zwischensumme",
}  # fmt: skip
BESIDE = {"anova", "count", "n", "p", "p value", "t test"}  # beside one of those
LONGER = {"average", "mean", "median", "mittelwert", "sd", "sem", "sum", "summe", "total"}
FOOTNOTE = re.compile(
    r"[^\w\s(].*|(?:notes?|sources?|legend|key|abbreviations?|footnotes?|comments?|remarks?)\b.*"
    r"|\S+\s*[=:].*|(?:\S+\s+){3,}\S+",
    re.IGNORECASE | re.DOTALL,
)
MOST_VALUES = 2_000_000  # of tables that are searched for sums and means; spreadsheets are smaller
MOST_SUMS = 100  # rows that equal a sum or mean; where there are more, most rows are alike
LAST = 12  # rows at the end that are compared with medians and deviations too
COLUMNS = 12  # that are compared
# How often a file without summaries may seem to have one, if its values were drawn independently.
CHANCE = 1e-4


def is_summary(text: str, *, alone: bool = False) -> bool:
    """Return whether a label says that its row summarizes others.

    Longer labels (`Mean of cases`) and words such as `n` count where nothing else describes the
    row.

    >>> is_summary("Total:"), is_summary("Mean case"), is_summary("Mean case", alone=True)
    (True, False, True)
    """
    said = _plain(text)
    return said in SUMMARIES or (alone and (said in BESIDE or said.split(" ")[0] in LONGER))


def names_of_summaries(table: Table, chosen: Mask) -> list[str]:
    """Return names of chosen rows that begin or end with a word for a summary, if few rows do.

    >>> notes = pd.DataFrame({"name": ["a", "b", "case Total"], "group": ["x", "y", "x"]})
    >>> table = Table(np.ones((3, 1)), ["x"], notes, None, True, "here.csv")
    >>> names_of_summaries(table, np.ones(3, bool))
    ['case Total']
    """
    names = pd.Series(table.row_names, dtype=object)
    if table.row_names is None:
        single = (own for _, own in table.annotations.items() if own.dropna().is_unique)
        names = next(single, names)
    if not len(names):
        return []
    words = names[chosen].dropna().astype(str)
    found = [word for word in words if is_summary(word) or LONGER & {*_ends(word)}]
    return found if len(found) <= max(1, len(words) // 10) else []


def _ends(word: str) -> list[str]:
    said = _plain(word).split()
    return [said[0], said[-1]] if said else []


def _plain(text: str) -> str:
    """Return the words of a label without accents and signs.

    >>> _plain("\u00c9cart-type:")
    'ecart type'
    """
    plain = normalize("NFKD", text).encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z]+", " ", plain.lower()).strip()


def without_summaries(table: Table) -> Table:
    """Leave out sums and means of other rows, and footnotes and summaries that end a spreadsheet.

    A footnote is a line with nothing but a sentence. A summary begins with a word for it, which no
    other row has, or its numbers are those of other rows (`rows_of_sums`).
    """
    sums = rows_of_sums(table)
    end, notes, summaries = table.n_rows, list[str](), list[str]()
    while end > 1:
        words = _words_of(table, end - 1)
        if sums[end - 1]:
            pass
        elif words and is_summary(words[0], alone=len(words) == 1):
            summaries.insert(0, words[0])
        elif len(words) == 1 and FOOTNOTE.fullmatch(words[0]):
            if not np.isnan(np.asarray(table.values[end - 1])).all():
                break
            notes.insert(0, words[0])
        else:
            break
        end -= 1
    above = table.annotations.iloc[:end].astype(str)
    common = {
        word for words in (*above.to_numpy().T, table.row_names or ()) for word in words[:end]
    }
    repeated = len(set(summaries)) < len(summaries) or common.intersection(summaries)
    only_beside = bool(summaries) and all(_plain(word) in BESIDE for word in summaries)
    last = np.arange(table.n_rows) >= end
    if repeated or (only_beside and not sums[last].any()):
        last, notes, summaries = np.zeros(table.n_rows, bool), [], []
    found = [(_words_of(table, int(i)) or [f"row {i + 1}"])[0] for i in np.flatnonzero(sums)]
    what = [
        ("a footnote at the end", "footnotes at the end", notes),
        ("a summary at the end", "summaries at the end", summaries),
        ("a row of sums or means of others", "rows of sums or means of others", found),
    ]
    said_of = [
        f"{one if len(own) == 1 else f'{len(own)} {many}'} "
        f"({', '.join(repr(word[:30]) for word in own[:3])})"
        for one, many, own in what
        if own
    ]
    gone = last | sums
    return rows_without(table, gone, f"without {' and '.join(said_of)}") if gone.any() else table


def _words_of(table: Table, row: int) -> list[str]:
    """Return the name and the annotations of a row, as far as it has them."""
    name = [] if table.row_names is None else [table.row_names[row]]
    own = [str(value) for value in table.annotations.iloc[row].dropna()]
    return [word.strip() for word in [*name, *own] if word.strip() not in NO_NAME]


def rows_without(table: Table, gone: Mask, remark: str) -> Table:
    """Return a table without some of its rows, and with a remark that says so."""
    names = table.row_names
    return table._replace(
        values=table.values[~gone],
        annotations=table.annotations[~gone].reset_index(drop=True),
        row_names=None if names is None else [names[i] for i in np.flatnonzero(~gone)],
        remarks=(*table.remarks, remark),
    )


# Sums and means


def rows_of_sums(table: Table) -> Mask:
    """Return which rows are sums or means of rows above them.

    These are all rows above, or those since a label changed or since the last such row. At the end
    of the table a row may also be the mean, the median or the standard deviation of all rows above
    that have its label.

    Examples
    --------
    >>> rows = np.array([[1.5, 20.25], [2.5, 11.75], [3.25, 17.5], [2.417, 16.5], [9.25, 1.25]])
    >>> notes = pd.DataFrame({"name": ["a", "b", "c", "mean", "d"]})
    >>> rows_of_sums(Table(rows, ["x", "y"], notes, None, True, "here.csv")).tolist()
    [False, False, False, True, False]
    """
    found = np.zeros(table.n_rows, dtype=bool)
    small = not is_sparse(table.values) and table.values.size <= MOST_VALUES
    if not small or table.n_rows < 4:
        return found
    rows = _compared_columns(np.asarray(table.values, dtype=np.float64))
    labels = [codes for codes, n_labels in _labels(table) if n_labels <= table.n_rows / 3]
    while len(rows.T) >= 2:
        more = _sums_of_blocks(rows, found, labels) & ~found
        more |= _sums_of_labels(rows, found | more, labels)
        if not (more & ~found).any():
            break
        found |= more
    return found


def _compared_columns(values: Array) -> Array:
    """Return a few columns that vary and are not multiples of each other."""
    finite = np.where(np.isfinite(values), values, np.nan)[:, : 10 * COLUMNS]
    finite = finite[:, np.isfinite(finite).any(axis=0)]
    varying = finite[:, np.nanmin(finite, axis=0) < np.nanmax(finite, axis=0)]
    kept, directions = list[Array](), list[Array]()
    for column in varying.T:
        scaled = column / np.nanmax(np.abs(column))
        own = np.nan_to_num(scaled - np.nanmean(scaled))
        own = own / np.linalg.norm(own)
        if len(kept) < COLUMNS and all(abs(own @ other) < 0.95 for other in directions):
            kept.append(column)
            directions.append(own)
    return np.array(kept).T if kept else np.empty((len(values), 0))


def _labels(table: Table) -> Iterator[tuple[npt.NDArray[np.intp], int]]:
    """Return the codes of the labels of each annotation, and how many there are."""
    for name in table.annotations:
        codes, labels = pd.factorize(table.annotations[name].astype(str))
        yield codes, len(labels)


def _sums_of_blocks(rows: Array, found: Mask, labels: list[npt.NDArray[np.intp]]) -> Mask:
    """Return the rows that are the sum or the mean of the rows since some row above."""
    n = len(rows)
    others = np.where(found[:, None], np.nan, rows)
    zero = np.zeros((1, rows.shape[1]))
    sums = np.vstack([zero, np.nancumsum(others, axis=0)])
    counts = np.vstack([zero, np.cumsum(~np.isnan(others), axis=0)])
    changes = [np.r_[False, codes[1:] != codes[:-1]] for codes in labels]
    begins = [np.zeros(n, dtype=bool), np.r_[False, found[:-1]], *changes]
    more = np.zeros(n, dtype=bool)
    for begin in begins:
        starts = np.maximum.accumulate(np.where(begin, np.arange(n), 0))
        starts = np.r_[0, starts[:-1]]  # of the block of the row before
        held = counts[:n] - counts[starts]
        total = sums[:n] - sums[starts]
        enough = (held >= 2).all(axis=1)
        for value in (total, total / np.maximum(held, 1.0)):
            more |= enough & _is_copied(rows, value, 2 * n * len(begins))
    return more


def _sums_of_labels(rows: Array, found: Mask, labels: list[npt.NDArray[np.intp]]) -> Mask:
    """Return the last rows that summarize all rows above, or those of their own label."""
    n, more = len(rows), np.zeros(len(rows), dtype=bool)
    for i in range(max(4, n - LAST), n):
        above = ~(found | more) & (np.arange(n) < i)
        for base in (above, *(above & (codes == codes[i]) for codes in labels)):
            own = rows[base]
            if len(own) < 3 or np.isnan(own).all(axis=0).any():
                continue
            deviation = np.nanstd(own, axis=0)
            several = np.sqrt(len(own) / (len(own) - 1))
            values = [np.nansum(own, axis=0), np.nanmean(own, axis=0), np.nanmedian(own, axis=0)]
            values += [deviation, deviation * several, deviation * several / np.sqrt(len(own))]
            tried = 6 * LAST * (1 + len(labels))
            copied = (_is_copied(rows, value, tried, np.array([i])) for value in values)
            more |= reduce(np.logical_or, copied)
    return more


def _is_copied(rows: Array, value: Array, tried: int, which: Array | None = None) -> Mask:
    """Return which rows have a value in all columns, more exactly than chance makes likely.

    A value is equal within half a unit of the last digit that the row shows. A row drawn by chance
    comes as near in a column with a probability of at most .4 times the width over the standard
    deviation, as under a normal distribution, or in as many rows as really do. A row that repeats
    one above is none.
    """
    own = rows if which is None else rows[which]
    width = 0.51 * _last_digit(own)
    equal = np.isnan(own) | (np.abs(own - value) <= width + 1e-9 * np.abs(value))
    held = np.isfinite(own)
    result = np.zeros(len(rows), dtype=bool)
    candidates = np.flatnonzero(equal.all(axis=1) & (held.sum(axis=1) >= 2))
    for i in candidates if len(candidates) <= MOST_SUMS else ():
        row = i if which is None else which[i]
        near = np.abs(rows - own[i])[:, held[i]] <= 2.0 * width[i, held[i]]
        spread = np.nanstd(rows[:, held[i]], axis=0)
        chance = np.minimum(1.0, 0.8 * width[i, held[i]] / spread)
        chance = np.maximum(chance, (near.sum(axis=0) - 1) / len(rows))
        certain = np.prod(np.maximum(chance, 1e-9)) * tried < CHANCE
        result[row] = bool(certain and not near[:row].all(axis=1).any())
    return result


def _last_digit(values: Array) -> Array:
    """Return the unit of the last decimal that numbers show, of at most ten.

    >>> _last_digit(np.array([2.0, 1.25, 1 / 3]))
    array([1.e+00, 1.e-02, 1.e-10])
    """
    units = np.full(values.shape, 1e-10)
    for places in range(9, -1, -1):
        with np.errstate(invalid="ignore", over="ignore"):
            shown = np.abs(np.round(values, places) - values) <= 1e-12 * np.abs(values)
        units[shown] = 10.0**-places
    return units
