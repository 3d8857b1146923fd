"""Data frames on their way in and out: text is refused, names of features and rows are kept."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd
from sklearn import get_config

from contrastive_lvm.arrays import Array, Matrix

Method = TypeVar("Method", bound=Callable[..., Any])


class NamedRows(NamedTuple):
    """Rows with names of their features, for containers without: sparse matrices, files, Dask."""

    values: Matrix
    names: list[str]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of rows and features."""
        n, d = self.values.shape
        return int(n), int(d)

    @property
    def header(self) -> pd.DataFrame:
        """A frame with these names and without rows, which scikit-learn can compare."""
        return pd.DataFrame(columns=pd.Index(self.names, dtype=object))


def unnamed(X: Any) -> Any:
    """Return rows without the names that `NamedRows` gave them."""
    return X.values if isinstance(X, NamedRows) else X


def first_few(names: Any) -> str:
    """Return the first three of many names, and how many more there are."""
    listed = [str(name) for name in sorted(names, key=str)]
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return f"{listed[:3]}{more}"


def readable(X: Any, name: str) -> Any:
    """Return frames, and arrays of objects, as scikit-learn can read them; all else as it is."""
    if X is None:
        raise ValueError(f"{name}=None is not data; give an array of rows and features.")
    if len(getattr(X, "shape", (0, 0))) != 2:
        raise ValueError(
            f"{name} has shape {tuple(X.shape)}, but needs two dimensions, rows and features: "
            "Reshape your data with .reshape(1, -1) for one row or .reshape(-1, 1) for one feature."
        )
    if isinstance(X, pd.DataFrame):
        return _from_pandas(X, name)
    if isinstance(X, np.ndarray) and X.dtype == np.object_:
        return _as_numbers(lambda: X.astype(np.float64), name)
    polars = sys.modules.get("polars")  # a package that nobody has imported made no X
    if polars is not None and isinstance(X, polars.LazyFrame):
        raise TypeError(f"{name} is a polars LazyFrame, which has no rows yet; pass .collect().")
    if polars is not None and isinstance(X, polars.DataFrame):
        return _from_polars(polars, X, name)
    return X


def _from_polars(pl: Any, X: Any, name: str) -> NamedRows:
    numeric = [kind.is_numeric() or kind in (pl.Boolean, pl.Null) for kind in X.dtypes]
    _refuse_text([c for c, fine in zip(X.columns, numeric, strict=True) if not fine], name)
    single = bool(X.columns) and all(kind == pl.Float32 for kind in X.dtypes)
    floats = X.select(pl.all().cast(pl.Float32 if single else pl.Float64))
    return NamedRows(floats.to_numpy(), list(X.columns))


def _from_pandas(X: Any, name: str) -> Any:
    kinds = list(X.dtypes)
    objects = np.array([kind == np.object_ for kind in kinds], dtype=bool)
    numeric = [bool(o) or _is_real(kind) for o, kind in zip(objects, kinds, strict=True)]
    _refuse_text([c for c, fine in zip(X.columns, numeric, strict=True) if not fine], name)
    twice = [c for c, n in Counter(X.columns).items() if n > 1 and isinstance(c, str)]
    if twice:
        raise ValueError(
            f"{name} has more than one column of the name {first_few(twice)}; "
            "name every feature once."
        )
    X = _without_mixed_sparsity(X, kinds)
    if objects.any():
        columns = X.columns[objects]
        found = X.where(X.notna(), np.nan) if X[columns].isna().to_numpy().any() else X
        return _as_numbers(lambda: found.astype(dict.fromkeys(columns, np.float64)), name)
    return X


def _is_real(kind: Any) -> bool:
    types = pd.api.types
    return bool(types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind))


def _refuse_text(columns: list[Any], name: str) -> None:
    if columns:
        raise ValueError(
            f"{name} has columns that are not numeric, {first_few(columns)}; drop or encode them."
        )


def _as_numbers(convert: Callable[[], Any], name: str) -> Any:
    try:
        return convert()
    except ValueError as error:
        raise ValueError(
            f"{name} holds text that is not a number ({error}); drop or encode such columns."
        ) from error


def _without_mixed_sparsity(X: Any, kinds: list[Any]) -> Any:
    """Make sparse columns dense, unless all columns are sparse and leave out zeros."""
    sparse = [isinstance(kind, pd.SparseDtype) for kind in kinds]
    if not any(sparse) or (all(sparse) and all(kind.fill_value == 0 for kind in kinds)):
        return X
    columns = (column for _, column in X.items())
    dense = [c.sparse.to_dense() if s else c for s, c in zip(sparse, columns, strict=True)]
    return pd.concat(dense, axis=1)


def follows_output(method: Method) -> Method:
    """Decorate a method whose rows of features become frames when `set_output` asks for them."""

    @wraps(method)
    def framed(self: Any, *arguments: Any, **options: Any) -> Any:
        found = method(self, *arguments, **options)
        configured = getattr(self, "_sklearn_output_config", {})
        kind = configured.get("transform", get_config()["transform_output"])
        if kind == "default":
            return found
        given = arguments[0] if arguments else next(iter(options.values()))
        if isinstance(found, tuple):
            return tuple(_framed(self, given, rows, kind) for rows in found)
        return _framed(self, given, found, kind)

    return cast("Method", framed)


def _framed(estimator: Any, given: Any, rows: Array, kind: str) -> Any:
    names = getattr(estimator, "feature_names_in_", None)
    columns = [f"x{i}" for i in range(rows.shape[1])] if names is None else list(names)
    if kind == "polars":
        return import_module("polars").DataFrame(rows, schema=columns, orient="row")
    index = given.index if isinstance(given, pd.DataFrame) else None
    return pd.DataFrame(rows, index=index, columns=columns)
