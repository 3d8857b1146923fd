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
from collections.abc import Mapping
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


def flatten(value: object, arrays: Arrays, path: str = "") -> Json:
    """Return a value as JSON holds it; its arrays are added to `arrays` by their paths.

    Raises
    ------
    TypeError
        If a part of it cannot be saved in a file.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> arrays = {}
    >>> flatten({"prior": clvm.ARD(1.0, 2.0), "mean": np.ones(2)}, arrays)["prior"]
    {'$class': 'contrastive_lvm:ARD', 'fields': {'a0': 1.0, 'b0': 2.0, 'drop': True}}
    >>> arrays
    {'mean': array([1., 1.])}
    """
    tag, held = _held(value)
    if held is None:
        return _flat_leaf(value, path, arrays)
    places = _places(held, path)
    flat = {key: flatten(item, arrays, places[key]) for key, item in held.items()}
    if tag == "$class":
        return {tag: class_path(type(value)), "fields": flat}
    if tag in ("$list", "$tuple"):
        return list(flat.values()) if tag == "$list" else {tag: list(flat.values())}
    if all(isinstance(key, str) and not key.startswith("$") for key in flat):
        return {tag: flat} if tag else flat
    return {"$dict": [[flatten(key, arrays, path), item] for key, item in flat.items()]}


def _held(value: object) -> tuple[str, Mapping[Any, object] | None]:
    """Return the kind of a value and its parts by name, key or position; None if it has none."""
    if is_value_class(type(value)):
        return "$class", {name: getattr(value, name) for name in field_names(type(value))}
    if isinstance(value, list | tuple):
        return "$list" if isinstance(value, list) else "$tuple", dict(enumerate(value))
    if isinstance(value, np.random.RandomState):
        name, key, position, *rest = value.get_state()
        held = {"key": key, "position": position, "rest": tuple(rest)}
        return "$random_state", held if name == "MT19937" else None
    if hasattr(value, "__array__") and not isinstance(value, np.generic):
        array = np.asarray(value)  # labels of features, for example
        return "$tuple", dict(enumerate(array.tolist())) if array.dtype.kind in "OSTU" else None
    return "", value if isinstance(value, Mapping) else None


def _flat_leaf(value: object, path: str, arrays: Arrays) -> Json:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int) and abs(value) < 2**63:
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"$float": str(value)}
    if isinstance(value, os.PathLike):
        return str(value)
    if hasattr(value, "__array__"):
        array = np.asarray(value)
        array = np.array(array, dtype=array.dtype.newbyteorder("<"), order="C", ndmin=array.ndim)
        if array.dtype.str in DTYPES:
            arrays[path] = array
            return {"$array": array.dtype.str, "shape": list(array.shape)}
    raise TypeError(
        f"{path}={clipped(value)} cannot be saved: a model file cannot contain a "
        f"{type(value).__name__}; replace it before saving, or pickle the model."
    )


def _places(held: Mapping[Any, object], path: str) -> dict[Any, str]:
    """Return the path to each value: by its key, if that is a word, or by its position."""
    begin = f"{path}." if path else ""
    return {k: f"{begin}{k if str(k).isidentifier() else i}" for i, k in enumerate(held)}


def unflatten(flat: Json, arrays: Arrays, path: str = "") -> Any:
    """Return the value that `flatten` was given; its arrays are removed from `arrays`.

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
        return _restore_dict(flat, arrays, path)
    if tag == "$array":
        return _restore_array(flat, arrays, path)
    if tag == "$class":
        return _restore_object(flat, arrays, path)
    return _restore_other(tag, flat[tag], arrays, path)


def _restore_other(tag: str, flat: Any, arrays: Arrays, path: str) -> object:
    if tag == "$tuple":
        return tuple(unflatten(flat, arrays, path))
    if tag == "$dict":
        return _restore_dict({unflatten(k, arrays, path): v for k, v in flat}, arrays, path)
    if tag == "$float" and flat in ("inf", "-inf", "nan"):
        return float(flat)
    if tag == "$random_state":
        return _restore_random_state(unflatten(flat, arrays, path), path)
    raise ValueError(f"{path} has the unknown form {tag} {clipped(flat)}")


def _restore_dict(flat: Mapping[Any, Json], arrays: Arrays, path: str) -> dict[Any, object]:
    places = _places(flat, path)
    found = {key: unflatten(item, arrays, places[key]) for key, item in flat.items()}
    for key, value in found.items() if path.startswith("state") else ():
        if str(key).startswith("n_") and isinstance(value, int) and value < 0:
            raise ValueError(f"{places[key]}={value} is a negative count")
    return found


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
        raise ValueError(
            f"{path} is of the class {clipped(flat['$class'])}, which no file contains"
        )
    held = unflatten(flat["fields"], arrays, path)
    if not isinstance(held, dict) or list(held) != field_names(kind):
        raise ValueError(f"{path} does not have the fields of a {kind.__name__}")
    return kind(**held)


def _restore_random_state(held: Any, path: str) -> np.random.RandomState:
    key, position, (has_gauss, gauss) = held["key"], held["position"], held["rest"]
    words = key.dtype == np.uint32 and key.shape == (624,)
    if not words or type(position) is not int or not 0 <= position <= 624:
        raise ValueError(f"{path} is not the state of a Mersenne twister")
    state = np.random.RandomState()
    state.set_state(("MT19937", key, position, int(has_gauss), float(gauss)))
    return state


def class_path(kind: type) -> str:
    """Return `module:name`, where the module of a public class of this package is the package.

    Raises
    ------
    TypeError
        If the class could not be found again, such as one that is defined inside a function.
    """
    module, name = kind.__module__, kind.__qualname__
    if _is_own(module) and getattr(sys.modules[PACKAGE], name, None) is kind:
        return f"{PACKAGE}:{name}"
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
    found: object = None
    if isinstance(path, str) and path.count(":") == 1:
        module, name = path.split(":")
        if not _is_own(module):
            found = _loaded(module, name)
        elif not any(part.startswith("_") for part in module.split(".")):
            with suppress(ImportError):
                found = getattr(import_module(module), name, None)
    if isinstance(found, type):
        return found
    raise ValueError(f"it names the unknown class {clipped(path)}")


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
