"""Encode arrays and annotations of rows for the page: base64 of little-endian numbers."""

import base64

import numpy as np
import numpy.typing as npt
import pandas as pd

from contrastive_lvm.arrays import Array, Column

CODES = 65534  # steps between the smallest and the largest value of a column; one more is NaN
Packed = dict[str, object]  # for JSON


def packed(values: npt.ArrayLike, dtype: str = "<f4") -> Packed:
    """Encode an array: its shape, the type of its numbers, and their bytes.

    >>> packed([[1.0, 2.0]])
    {'shape': [1, 2], 'kind': 'f4', 'bytes': 'AACAPwAAAEA='}
    """
    array = np.ascontiguousarray(values, dtype=dtype)
    text = base64.b64encode(array.tobytes()).decode("ascii")
    return {"shape": list(array.shape), "kind": dtype[1:], "bytes": text}


def coded(values: Array) -> Packed:
    """Encode columns in 65,535 equal steps each, two bytes per entry; NaN has a code of its own.

    Integers within that range stay exact. The result is that of `packed`, with the value of code 0
    (`low`) and of a step (`step`) for each column.

    >>> found = coded(np.array([[0.0, np.nan], [3.0, 0.5]]))
    >>> found["low"], found["step"]
    ([0.0, 0.5], [1.0, 1.0])
    """
    observed = ~np.isnan(values)
    low = np.where(observed, values, np.inf).min(axis=0, initial=np.inf)
    high = np.where(observed, values, -np.inf).max(axis=0, initial=-np.inf)
    low, high = (np.where(np.isfinite(limit), limit, 0.0) for limit in (low, high))
    spread = high - low
    whole = ((values == np.rint(values)) | ~observed).all(axis=0) & (spread <= CODES)
    step = np.where(whole | (spread == 0), 1.0, spread / CODES)
    with np.errstate(invalid="ignore"):
        codes = np.rint((values - low) / step)
    codes[~observed] = CODES + 1
    return packed(codes, "<u2") | {"low": low.tolist(), "step": step.tolist()}


def columns(target: pd.DataFrame, background: pd.DataFrame | None) -> list[Packed]:
    """Encode all annotations, the rows of the target first, then those of the background.

    A column holds numbers (`values`) or groups (`levels` and a code for each row, -1 for none).
    """
    frames = [target] if background is None else [target, background]
    names = dict.fromkeys(str(name) for frame in frames for name in frame.columns)
    return [_column(name, _joined([_own(name, f) for f in frames])) for name in names]


def _joined(parts: list[Column]) -> Column:
    """Join the parts of a column; the order of categories is kept where all parts share them."""
    kinds = [part.dtype for part in parts if isinstance(part.dtype, pd.CategoricalDtype)]
    if kinds and all(part.dtype == kinds[0] or part.isna().all() for part in parts):
        parts = [part.astype(kinds[0]) for part in parts]
    joined: Column = pd.concat(parts)
    return joined


def _own(name: str, frame: pd.DataFrame) -> Column:
    for column in frame.columns:
        if str(column) == name:
            found: Column = frame[column]
            boolean = pd.api.types.is_bool_dtype(found)  # true and false are groups
            return found.astype("string").astype(object) if boolean else found
    return pd.Series(np.full(len(frame), np.nan), index=frame.index)


def _column(name: str, values: Column) -> Packed:
    if pd.api.types.is_numeric_dtype(values):
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        if not _names_groups(numbers):
            finite = np.where(np.isfinite(numbers), numbers, np.nan)
            return {"name": name, "kind": "number", "values": packed(finite)}
        values = values.astype("Int64") if np.isnan(numbers).any() else values.astype(int)
    codes, levels = _groups(values)
    kind = "group" if len(levels) <= 60 else "text"  # for tooltips and search, not for a legend
    return {"name": name, "kind": kind, "levels": levels, "codes": packed(codes, "<i4")}


def _names_groups(numbers: np.ndarray) -> bool:
    """Return whether numbers are up to eight integers, which name groups rather than amounts."""
    seen = np.unique(numbers[~np.isnan(numbers)])
    return len(seen) <= 8 and bool((seen == np.rint(seen)).all())


def _groups(values: Column) -> tuple[np.ndarray, list[str]]:
    """Return codes and names of groups, in the order of categories, numbers or the alphabet."""
    try:
        codes, levels = pd.factorize(values, sort=True)
    except TypeError:  # types that cannot be compared
        codes, levels = pd.factorize(values.astype("string"), sort=True)
    return codes, [str(level) for level in levels]
