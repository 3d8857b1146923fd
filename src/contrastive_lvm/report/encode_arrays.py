"""Encode arrays as text for the page: base64 of little-endian numbers."""

import base64

import numpy as np
import numpy.typing as npt

from contrastive_lvm.arrays import Array

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
