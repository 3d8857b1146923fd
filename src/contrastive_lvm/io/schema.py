"""What a model file holds, taken out a name at a time, each in the form it must have.

A checksum says that a file is as it was written, not that it makes sense; these say that. Whatever
is left over at the end is refused too.
"""

from typing import Any, Literal

import numpy as np

from contrastive_lvm.io.container import clipped

Values = Literal["any", "finite", "not negative", "positive"]
Shape = tuple[int | None, ...]  # None is any length
FLOATS = (np.dtype(np.float64), np.dtype(np.float32))  # all that model files have


class Facts:
    """Settings of JSON by name; `what` they are called in messages."""

    def __init__(self, what: str, values: Any) -> None:
        if not isinstance(values, dict):
            raise TypeError(f"{what} are {clipped(values)} in place of names and values")
        self.what, self._left = what, dict(values)

    def take(self, name: str) -> Any:
        """A value of any kind."""
        if name not in self._left:
            raise ValueError(f"its {self.what} lack {name!r}")
        return self._left.pop(name)

    def whole(self, name: str, least: int = 0) -> int:
        """A whole number."""
        value = self.take(name)
        if type(value) is not int or value < least:
            raise self._wrong(name, value, f"a whole number of at least {least}")
        return value

    def number(self, name: str, values: Values = "finite") -> float:
        """A finite number."""
        value = self.take(name)
        if type(value) not in (int, float) or not _all(values, np.float64(value)):
            raise self._wrong(name, value, f"a number that is {values}")
        return float(value)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.take(name)
        if type(value) is not bool:
            raise self._wrong(name, value, "true or false")
        return value

    def words(self, name: str) -> list[str]:
        """A list of strings."""
        value = self.take(name)
        if not isinstance(value, list) or not all(isinstance(word, str) for word in value):
            raise self._wrong(name, value, "a list of words")
        return value

    def optional(self, name: str) -> bool:
        """Whether a value is there; null is taken away."""
        if self._left.get(name, "") is not None:
            return True
        del self._left[name]
        return False

    def finish(self) -> None:
        """Nothing may be left."""
        if self._left:
            raise ValueError(f"its {self.what} have the unknown {clipped(sorted(self._left))}")

    def _wrong(self, name: str, value: Any, form: str) -> ValueError:
        return ValueError(f"{name}={clipped(value)} of its {self.what} must be {form}")


class Arrays:
    """Arrays by name."""

    def __init__(self, arrays: dict[str, Any]) -> None:
        self._left = dict(arrays)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def starting(self, prefix: str) -> list[str]:
        """Names of arrays that are left and begin so."""
        return [name for name in self._left if name.startswith(prefix)]

    def dimensions(self, name: str) -> int:
        """How many an array has."""
        return len(self._left[name].shape)

    def take(
        self, name: str, shape: Shape, values: Values = "finite", *, narrow: bool = False
    ) -> Any:
        """An array of this shape with such values; single precision only where `narrow`."""
        if name not in self._left:
            raise ValueError(f"it lacks the array {name!r}")
        array = self._left.pop(name)
        fits = len(array.shape) == len(shape) and all(
            want in (None, have) for want, have in zip(shape, array.shape, strict=True)
        )
        if not fits:
            wanted = str(shape).replace("None", "any")
            raise ValueError(f"{name} has shape {array.shape} in place of {wanted}")
        if array.dtype != np.float64 and not narrow:
            raise ValueError(f"{name} holds numbers of the kind {array.dtype}")
        if not _all(values, array):
            raise ValueError(f"{name} holds a number that is not {values}")
        return array

    def single(self, name: str, shape: Shape, values: Values = "finite") -> Any:
        """An array of single precision, also where double precision keeps such numbers."""
        array = self.take(name, shape, values, narrow=True)
        single = array.astype(np.float32)
        if not np.array_equal(single, array, equal_nan=True):
            raise ValueError(f"{name} holds a number that single precision cannot")
        return single

    def positions(self, name: str, shape: Shape, below: int) -> np.ndarray:
        """Whole numbers from 0 up to a limit."""
        array = self.take(name, shape, "not negative")
        if (array != np.floor(array)).any() or (array >= below).any():
            raise ValueError(f"{name} holds a number that is no position below {below}")
        return np.asarray(array.astype(np.intp))

    def finish(self) -> None:
        """Nothing may be left."""
        if self._left:
            raise ValueError(f"it has the unknown arrays {clipped(sorted(self._left))}")


def _all(values: Values, array: Any) -> bool:
    if values == "any":
        return True
    kept = np.isfinite(array)
    if values == "not negative":
        kept &= array >= 0
    if values == "positive":
        kept &= array > 0
    return bool(np.all(kept))
