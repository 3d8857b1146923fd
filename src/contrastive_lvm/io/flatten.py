"""Nested values as JSON and arrays, and back.

JSON holds None, truth values, numbers, text, lists, and dicts whose keys are text. All else is an
object with a key that begins with `$`:

- `{"$array": "<f8", "shape": [5, 2]}`, an array, which is stored under the path to it;
- `{"$class": "contrastive_lvm:ARD", "fields": {...}}`, a frozen dataclass or a NamedTuple;
- `{"$tuple": [...]}`, `{"$dict": [[key, value], ...]}`, `{"$float": "inf"}`;
- `{"$random_state": {...}}`, a `numpy.random.RandomState`.

Classes have an import path, and are found without running anything that a file names. Those of this
package are imported. Those of other modules are only looked up among the modules that are loaded
already, so a prior that a notebook defines is found while that notebook runs.
"""

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

import numpy as np

from contrastive_lvm.io.container import Arrays, Json, JsonObject, clipped
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.priors.base import Prior

PACKAGE = "contrastive_lvm"
DTYPES = ("<f8", "<f4", "<i8", "<i4", "<u4", "|u1", "|b1")


def flatten(value: object, path: str = "") -> tuple[Json, Arrays]:
    """Return a value as JSON holds it, and its arrays by their paths.

    Raises
    ------
    TypeError
        If there is something in it that a file cannot hold.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> flatten({"prior": clvm.ARD(1.0, 2.0), "sizes": (2, 3), "mean": np.ones(2)})[0]["prior"]
    {'$class': 'contrastive_lvm:ARD', 'fields': {'a0': 1.0, 'b0': 2.0}}
    """
    arrays: Arrays = {}
    return _flat(value, path, arrays), arrays


def unflatten(flat: Json, arrays: Arrays, path: str = "") -> Any:
    """Return the value that `flatten` was given; the arrays that it holds are taken away.

    Raises
    ------
    ImportError
        If it needs a class of a module that is not loaded.
    LookupError, TypeError, ValueError
        If no value flattens to this.
    """
    if isinstance(flat, list):
        return [unflatten(item, arrays, f"{path}.{i}") for i, item in enumerate(flat)]
    if not isinstance(flat, dict):
        return flat
    tag = next((key for key in flat if key.startswith("$")), None)
    if tag is None:
        parts = _parts(flat)
        return {k: unflatten(v, arrays, _join(path, parts[k])) for k, v in flat.items()}
    if tag not in RESTORE:
        raise ValueError(f"{path} has the unknown form {clipped(flat)}")
    return RESTORE[tag](flat, arrays, path)


def _flat(value: object, path: str, arrays: Arrays) -> Json:
    if isinstance(value, np.generic):
        value = value.item()
    held = _held(value, path)
    if held is None:
        return _flat_leaf(value, path, arrays)
    parts = _parts(held)
    flat = {key: _flat(item, _join(path, parts[key]), arrays) for key, item in held.items()}
    if isinstance(value, list):
        return list(flat.values())
    if isinstance(value, np.random.RandomState):
        return {"$random_state": flat}
    if is_value_class(type(value)):
        return {"$class": class_path(type(value)), "fields": flat}
    if not isinstance(value, Mapping):
        return {"$tuple": list(flat.values())}
    if all(isinstance(key, str) and not key.startswith("$") for key in flat):
        return flat
    return {"$dict": [[_flat(key, path, arrays), item] for key, item in flat.items()]}


def _held(value: object, path: str) -> Mapping[Any, object] | None:
    """Return the values inside a value, by name, key or position; None if it has none."""
    if is_value_class(type(value)):
        return {name: getattr(value, name) for name in field_names(type(value))}
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, np.random.RandomState):
        return _random_state(value, path)
    if hasattr(value, "__array__") and np.asarray(value).dtype.kind in "OSTU":
        return dict(enumerate(np.asarray(value).tolist()))  # labels of features, for example
    return value if isinstance(value, Mapping) else None


def _flat_leaf(value: object, path: str, arrays: Arrays) -> Json:
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"$float": str(value)}
    if isinstance(value, os.PathLike):
        return str(value)
    if hasattr(value, "__array__"):
        return _flat_array(np.asarray(value), path, arrays)
    raise _unsupported(value, path)


def _flat_array(array: np.ndarray, path: str, arrays: Arrays) -> Json:
    array = np.array(array, dtype=array.dtype.newbyteorder("<"), order="C", ndmin=array.ndim)
    if array.dtype.str not in DTYPES:
        raise _unsupported(array, path)
    arrays[path] = array
    return {"$array": array.dtype.str, "shape": list(array.shape)}


def _parts(value: Mapping[Any, object]) -> dict[Any, str]:
    """Return what stands for each key in a path: itself, if it is a word, or its position."""
    return {k: k if str(k).isidentifier() else str(i) for i, k in enumerate(value)}


def _join(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part


def _unsupported(value: object, path: str) -> TypeError:
    return TypeError(
        f"{path}={clipped(value)} cannot be saved: a model file holds no such "
        f"{type(value).__name__}; replace it before saving, or pickle the model."
    )


def _restore_array(flat: JsonObject, arrays: Arrays, path: str) -> np.ndarray:
    if path not in arrays:
        raise ValueError(f"it lacks the array {path!r}")
    array = arrays.pop(path)
    described = {"$array": array.dtype.str, "shape": list(array.shape)}
    if flat != described or array.dtype.str not in DTYPES:
        raise ValueError(f"the array {path!r} is not as its settings describe it")
    return array


def _restore_object(flat: JsonObject, arrays: Arrays, path: str) -> object:
    kind = find_class(flat["$class"])
    if not is_value_class(kind):
        raise ValueError(f"{path} is of the class {clipped(flat['$class'])}, which no file holds")
    held = unflatten(flat["fields"], arrays, path)
    if not isinstance(held, dict) or list(held) != field_names(kind):
        raise ValueError(f"{path} does not have the fields of a {kind.__name__}")
    return kind(**held)


def _restore_tuple(flat: JsonObject, arrays: Arrays, path: str) -> tuple[object, ...]:
    return tuple(unflatten(flat["$tuple"], arrays, path))


def _restore_dict(flat: JsonObject, arrays: Arrays, path: str) -> dict[Any, object]:
    pairs: Any = flat["$dict"]
    items = {unflatten(key, arrays, path): item for key, item in pairs}
    parts = _parts(items)
    return {k: unflatten(v, arrays, _join(path, parts[k])) for k, v in items.items()}


def _restore_float(flat: JsonObject, arrays: Arrays, path: str) -> float:
    if flat["$float"] not in ("inf", "-inf", "nan"):
        raise ValueError(f"{path} has the unknown form {clipped(flat)}")
    return float(str(flat["$float"]))


def _random_state(value: np.random.RandomState, path: str) -> dict[str, object]:
    name, key, position, *rest = value.get_state()
    if name != "MT19937":
        raise _unsupported(value, path)
    return {"key": key, "position": position, "rest": tuple(rest)}


def _restore_random_state(flat: JsonObject, arrays: Arrays, path: str) -> np.random.RandomState:
    held = unflatten(flat["$random_state"], arrays, path)
    key, position, (has_gauss, gauss) = held["key"], held["position"], held["rest"]
    words = key.dtype == np.uint32 and key.shape == (624,)
    if not words or type(position) is not int or not 0 <= position <= 624:
        raise ValueError(f"{path} is not the state of a Mersenne twister")
    state = np.random.RandomState()
    state.set_state(("MT19937", key, position, int(has_gauss), float(gauss)))
    return state


RESTORE: dict[str, Callable[[JsonObject, Arrays, str], object]] = {
    "$array": _restore_array,
    "$class": _restore_object,
    "$tuple": _restore_tuple,
    "$dict": _restore_dict,
    "$float": _restore_float,
    "$random_state": _restore_random_state,
}


def class_path(kind: type) -> str:
    """Return `module:name`, where the module of a public class of this package is the package.

    Raises
    ------
    TypeError
        If the class could not be found again, as one that is defined inside a function.
    """
    module, name = kind.__module__, kind.__qualname__
    if _is_own(module) and getattr(import_module(PACKAGE), name, None) is kind:
        module = PACKAGE
    path = f"{module}:{name}"
    with suppress(ImportError, ValueError):
        if find_class(path) is kind:
            return path
    raise TypeError(
        f"the class {path} cannot be saved, because it could not be found when the file is "
        "read; define it at the top level of a module."
    )


def find_class(path: object) -> type:
    """Return the class with this import path.

    Raises
    ------
    ImportError
        If it belongs to a module that is not loaded.
    ValueError
        If this package has no such class.
    """
    if not isinstance(path, str) or path.count(":") != 1:
        raise ValueError(f"it names the unknown class {clipped(path)}")
    module, name = path.split(":")
    found = _own(module, name) if _is_own(module) else _loaded(module, name)
    if isinstance(found, type):
        return found
    raise ValueError(f"it names the unknown class {clipped(path)}")


def is_value_class(kind: type) -> bool:
    """Return whether files may hold values of this class.

    These are NamedTuples, the frozen dataclasses of this package, and priors and likelihoods of
    other modules that are frozen dataclasses.
    """
    if kind.__bases__ == (tuple,) and hasattr(kind, "_fields"):
        return True
    frozen = is_dataclass(kind) and bool(vars(kind)["__dataclass_params__"].frozen)
    return frozen and (_is_own(kind.__module__) or issubclass(kind, Prior | Likelihood))


def field_names(kind: type) -> list[str]:
    """Return the names of the fields that are saved: all whose metadata does not say otherwise."""
    if is_dataclass(kind):
        return [f.name for f in fields(kind) if f.init and f.metadata.get("saved", True)]
    return list(getattr(kind, "_fields", ()))


def _is_own(module: str) -> bool:
    return module.split(".", maxsplit=1)[0] == PACKAGE


def _own(module: str, name: str) -> object:
    if any(part.startswith("_") for part in module.split(".")):
        return None
    with suppress(ImportError):
        return getattr(import_module(module), name, None)
    return None


def _loaded(module: str, name: str) -> object:
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    if found is None:
        way = "define it first" if module in sys.modules else "import it first"
        raise ImportError(
            f"needs the class {clipped(name)} of the module {clipped(module)}; {way}."
        )
    return found
