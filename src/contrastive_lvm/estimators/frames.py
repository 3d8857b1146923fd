"""Data frames on their way in and out: text is refused, names of features and rows are kept."""

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd
from sklearn import get_config

from contrastive_lvm.arrays import Array, Matrix
from contrastive_lvm.estimators.object_arrays import numbers_of
from contrastive_lvm.exceptions import InvalidDataError

if TYPE_CHECKING:
    from contrastive_lvm.estimators.base_estimator import Estimator

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


def unnamed(X: Any) -> Any:
    """Return rows without the names that `NamedRows` gave them."""
    return X.values if isinstance(X, NamedRows) else X


def first_few(names: Iterable[object]) -> str:
    """Return the first three of many names, and how many more there are."""
    listed = sorted(str(name) for name in names)
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return f"{listed[:3]}{more}"


def is_frame(X: object) -> bool:
    """Whether rows are a frame of pandas or polars."""
    polars = sys.modules.get("polars")  # a package that nobody has imported made no X
    others = () if polars is None else (polars.DataFrame, polars.LazyFrame)
    return isinstance(X, (pd.DataFrame, *others))


def values_of_frame(X: Any, name: str) -> Any:
    """Return the numbers of a frame; what has no value is NaN."""
    return _from_pandas(X, name) if isinstance(X, pd.DataFrame) else _from_polars(X, name)


def _from_polars(X: Any, name: str) -> Any:
    pl = import_module("polars")
    if isinstance(X, pl.LazyFrame):
        raise TypeError(f"{name} is a polars LazyFrame, which has no rows yet; pass .collect().")
    _refuse_text([c for c, k in X.schema.items() if not (k.is_numeric() or k == pl.Boolean)], name)
    single = bool(X.columns) and all(kind == pl.Float32 for kind in X.dtypes)
    floats = X.select(pl.all().cast(pl.Float32 if single else pl.Float64))
    return floats.to_numpy()


def _from_pandas(X: Any, name: str) -> Any:
    kinds: list[Any] = list(X.dtypes)
    objects = [i for i, kind in enumerate(kinds) if kind == np.object_]
    real = [i in objects or _is_real(kind) for i, kind in enumerate(kinds)]
    _refuse_text([c for c, fine in zip(X.columns, real, strict=True) if not fine], name)
    twice = [c for c, n in Counter(X.columns).items() if n > 1 and isinstance(c, str)]
    if twice:
        reason = (
            f"has more than one column of the name {first_few(twice)}; name every feature once."
        )
        raise InvalidDataError(name, reason)
    if kinds and all(isinstance(k, pd.SparseDtype) and k.fill_value == 0 for k in kinds):
        return X.sparse.to_coo()
    if objects:
        X = X.copy(deep=False)
        for i in objects:
            X.isetitem(i, numbers_of(X.iloc[:, i].to_numpy(), name))
    single = bool(kinds) and all(kind == np.float32 for kind in kinds)
    return X.to_numpy(dtype=np.float32 if single else np.float64, na_value=np.nan)


def _is_real(kind: Any) -> bool:
    types = pd.api.types
    return bool(types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind))


def _refuse_text(columns: list[object], name: str) -> None:
    if columns:
        reason = f"has columns that are not numeric, {first_few(columns)}; drop or encode them."
        raise InvalidDataError(name, reason)


def follows_output(method: Method) -> Method:
    """Decorate a method whose rows of features become frames when `set_output` asks for them."""

    @wraps(method)
    def framed(self: "Estimator", *arguments: Any, **options: Any) -> Any:
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


def _framed(estimator: "Estimator", given: object, rows: Array, kind: str) -> Any:
    names = getattr(estimator, "feature_names_in_", None)
    columns = [f"x{i}" for i in range(rows.shape[1])] if names is None else list(names)
    if kind == "polars":
        return import_module("polars").DataFrame(rows, schema=columns, orient="row")
    index = given.index if isinstance(given, pd.DataFrame) else None
    return pd.DataFrame(rows, index=index, columns=columns)
