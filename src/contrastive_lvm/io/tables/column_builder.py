"""From data frames, one or many pieces of one, to a table: numbers apart from annotations."""

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.io.tables.table import Table, refuse_empty

GROWTH = 1.05  # of the array when it is full
NUMBERS, WORDS, NOTHING = "numbers", "words", "nothing"


class Gatherer:
    """Collects pieces of a data frame row after row.

    A column is of numbers or of words in all its pieces; one that has both is refused, by its first
    value of the rarer kind.
    """

    def __init__(
        self,
        source: str,
        columns: list[str],
        annotations: Collection[str] = (),
        features: Collection[str] | None = None,
        *,
        typed: bool = False,
    ) -> None:
        self.source = source
        self.typed = typed  # the file says what is text, even text that looks like numbers
        self.columns = columns
        self.kinds = dict.fromkeys(columns, NOTHING)
        self.aside = set(annotations)
        if features is not None:
            self.aside |= set(columns).difference(features)
        self.pieces: list[pd.DataFrame] = []
        self.candidates: list[str] | None = None  # columns that have an array column
        self.array: npt.NDArray[Any] = np.empty((0, 0))
        self.n_rows = 0

    def add(self, frame: pd.DataFrame) -> None:
        """Take the next rows."""
        numbers = [name for name in self.columns if name not in self.aside]
        dtypes = frame.dtypes
        number = {dtype: _is_number(dtype) for dtype in dtypes.unique()}
        plain = {str(name) for name, dtype in dtypes.items() if number[dtype]}
        for name in numbers:
            if name not in plain:
                frame = self._judge(frame, name)
            elif self.kinds[name] != NUMBERS and frame[name].notna().any():
                self._note(name, NUMBERS, frame[name])
        if self.candidates is None:
            self.candidates = [name for name in numbers if self.kinds[name] != WORDS]
            self.array = np.empty((0, len(self.candidates)), _precision(frame, self.candidates))
        keep = [name for name in self.candidates if self.kinds[name] != WORDS]
        kept = set(keep)
        words = [name for name in self.columns if name not in kept]
        self.pieces.append(frame[words].copy())
        self._append(frame, keep)

    def _judge(self, frame: pd.DataFrame, name: str) -> pd.DataFrame:
        """Look into a column that is not plainly one of numbers."""
        column = frame[name]
        present = column.dropna()
        if present.empty:
            return frame if self.kinds[name] == WORDS else frame.assign(**{name: np.nan})
        words = self.typed and isinstance(present.iloc[0], str)
        numeric = ~present.notna() if words else _numeric(present)
        if numeric.all():
            self._note(name, NUMBERS, present)
            return frame.assign(**{name: pd.to_numeric(column.astype(object), errors="coerce")})
        if numeric.any():
            rarer = ~numeric if numeric.mean() >= 0.5 else numeric
            self._refuse(name, present[rarer])
        self._note(name, WORDS, present)
        return frame

    def _note(self, name: str, kind: str, values: "pd.Series[Any]") -> None:
        if self.kinds[name] not in (NOTHING, kind):
            self._refuse(name, values.dropna())
        self.kinds[name] = kind

    def _refuse(self, name: str, odd: "pd.Series[Any]") -> None:
        value, row = odd.iloc[0], self.n_rows + int(odd.index[0]) + 1
        words = isinstance(value, str) and not _numeric(odd.iloc[:1]).all()
        others = "numbers" if words else "words"
        raise ValueError(
            f"{self.source} has {value!r} in row {row} of column {name!r}, where other rows have "
            f"{others}; correct it, or keep the column out of the model with --annotation {name}."
        )

    def _append(self, frame: pd.DataFrame, keep: list[str]) -> None:
        need = self.n_rows + len(frame)
        if need > len(self.array):
            most = max(need, int(GROWTH * len(self.array)))
            # In place: the old and the new array are never both there.
            self.array.resize((most, self.array.shape[1]), refcheck=False)
        block = frame[keep].to_numpy(dtype=self.array.dtype, na_value=np.nan)
        if len(keep) == self.array.shape[1]:
            self.array[self.n_rows : need] = block
        else:  # a column began without values and then had words
            at = [i for i, name in enumerate(self.candidates or []) if name in set(keep)]
            self.array[self.n_rows : need] = np.nan
            self.array[self.n_rows : need, at] = block
        self.n_rows = need

    def table(self, row_names: list[str] | None = None) -> Table:
        """Everything that was taken."""
        candidates = self.candidates or []
        self.array.resize((self.n_rows, len(candidates)), refcheck=False)
        features = [name for name in candidates if self.kinds[name] != WORDS]
        refuse_empty(self.n_rows, len(features), self.source)
        values = self.array
        if len(features) < len(candidates):
            values = values[:, [self.kinds[name] != WORDS for name in candidates]]
        rest = [name for name in self.columns if name not in set(features)]
        notes = [piece.reindex(columns=rest) for piece in self.pieces]
        annotations = pd.concat(notes, ignore_index=True) if len(notes) > 1 else notes[0]
        return Table(
            values=values,
            features=features,
            annotations=annotations.reset_index(drop=True),
            row_names=row_names,
            named=True,
            source=self.source,
        )


def _is_number(dtype: Any) -> bool:
    number = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
    return bool(number) and not pd.api.types.is_complex_dtype(dtype)


def _numeric(values: "pd.Series[Any]") -> "pd.Series[bool]":
    """Which values are numbers, or words that say one."""
    if values.dtype == object or isinstance(values.dtype, pd.StringDtype):
        return pd.to_numeric(values.astype(str), errors="coerce").notna()
    return pd.Series(_is_number(values.dtype), index=values.index)


def _precision(frame: pd.DataFrame, columns: list[str]) -> type[np.floating[Any]]:
    """Single precision if no column has more."""
    kinds = {frame[name].dtype for name in columns}
    single = kinds and all(
        isinstance(kind, np.dtype) and kind.kind == "f" and kind.itemsize <= 4 for kind in kinds
    )
    return np.float32 if single else np.float64
