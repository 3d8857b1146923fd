"""Classes by import path, for model files: found without running anything that a file names.

Classes of this package are imported. Those of other modules are only looked up among the modules
that are loaded already, so a prior that a notebook defines is found while that notebook runs.
"""

import sys
from contextlib import suppress
from dataclasses import fields, is_dataclass
from importlib import import_module

from contrastive_lvm.io.container import clipped
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.priors.base import Prior

PACKAGE = "contrastive_lvm"


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
