"""Data frames on their way in and out: columns without numbers refused, names and rows kept."""

import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from sklearn import get_config

from contrastive_lvm.arrays import Array, Matrix

Method = TypeVar("Method", bound=Callable[..., Any])


class NamedRows(NamedTuple):
    """Rows with the names of their features, for what has none: sparse matrices, files, Dask."""

    values: Matrix
    names: list[str]

    @property
    def shape(self) -> tuple[int, int]:
        """Of the rows."""
        n, d = self.values.shape
        return int(n), int(d)

    def settle(self, estimator: Any, name: str, *, reset: bool) -> None:
        """Remember the names of a fit, or compare them with those."""
        if reset:
            estimator.n_features_in_ = len(self.names)
            estimator.feature_names_in_ = np.array(self.names, dtype=object)
            return
        known = getattr(estimator, "feature_names_in_", None)
        if known is not None and list(known) != self.names:
            raise ValueError(_mismatch(name, [str(n) for n in known], self.names))
        if len(self.names) != estimator.n_features_in_:
            raise ValueError(
                f"{name} has {len(self.names)} features, but {type(estimator).__name__} is "
                f"expecting {estimator.n_features_in_} features as input; give it the same columns."
            )


def unnamed(X: Any) -> Any:
    """Rows without names that they were given."""
    return X.values if isinstance(X, NamedRows) else X


def _mismatch(name: str, known: list[str], given: list[str]) -> str:
    lacking = [n for n in known if n not in set(given)]
    unknown = [n for n in given if n not in set(known)]
    if lacking or unknown:
        return (
            f"{name} has other feature names than the fit: it lacks {some(lacking)}, and the fit "
            f"has not seen {some(unknown)}; give it the same columns."
        )
    return (
        f"{name} has the feature names of the fit in another order; select the columns "
        "feature_names_in_ of the model."
    )


def some(names: Any) -> str:
    """The first few of many."""
    listed = [str(name) for name in sorted(names, key=str)]
    more = f" and {len(listed) - 3} more" if len(listed) > 3 else ""
    return f"{listed[:3]}{more}"


def unframed(X: Any, name: str) -> Any:
    """Frames as scikit-learn can read them; all else as it is."""
    if _is(X, "polars", "LazyFrame"):
        raise TypeError(f"{name} is a polars LazyFrame, which has no rows yet; pass .collect().")
    if _is(X, "polars", "DataFrame"):
        return _from_polars(X, name)
    if _is(X, "pandas", "DataFrame"):
        return _from_pandas(X, name)
    return X


def _is(X: Any, package: str, kind: str) -> bool:
    """Whether X is of a class; a package that nobody has imported made no X."""
    module = sys.modules.get(package)
    return module is not None and isinstance(X, getattr(module, kind))


def _from_polars(X: Any, name: str) -> NamedRows:
    pl = sys.modules["polars"]
    numeric = [kind.is_numeric() or kind in (pl.Boolean, pl.Null) for kind in X.dtypes]
    _refuse_words([c for c, fine in zip(X.columns, numeric, strict=True) if not fine], name)
    single = bool(X.columns) and all(kind == pl.Float32 for kind in X.dtypes)
    floats = X.select(pl.all().cast(pl.Float32 if single else pl.Float64))
    return NamedRows(floats.to_numpy(), list(X.columns))


def _from_pandas(X: Any, name: str) -> Any:
    pd = sys.modules["pandas"]
    kinds = list(X.dtypes)
    fine = [kind == np.object_ or _is_real(pd, kind) for kind in kinds]
    _refuse_words([c for c, numbers in zip(X.columns, fine, strict=True) if not numbers], name)
    twice = [c for c, n in Counter(X.columns).items() if n > 1 and isinstance(c, str)]
    if twice:
        raise ValueError(
            f"{name} has more than one column of the name {some(twice)}; name every feature once."
        )
    return _plain_gaps(pd, X, kinds)


def _is_real(pd: Any, kind: Any) -> bool:
    types = pd.api.types
    return bool(types.is_numeric_dtype(kind) and not types.is_complex_dtype(kind))


def _refuse_words(columns: list[Any], name: str) -> None:
    if columns:
        raise ValueError(
            f"{name} has columns that are not numeric, {some(columns)}; drop or encode them."
        )


def _plain_gaps(pd: Any, X: Any, kinds: list[Any]) -> Any:
    """Gaps of objects as NaN; sparse columns stay sparse when all are and fill with zero."""
    sparse = [isinstance(kind, pd.SparseDtype) for kind in kinds]
    if any(sparse) and not (all(sparse) and all(kind.fill_value == 0 for kind in kinds)):
        columns = (column for _, column in X.items())
        dense = [c.sparse.to_dense() if s else c for s, c in zip(sparse, columns, strict=True)]
        X = pd.concat(dense, axis=1)
    objects = np.array([kind == np.object_ for kind in kinds])
    if objects.any() and X.loc[:, objects].isna().to_numpy().any():
        X = X.astype(dict.fromkeys(X.columns[objects], object))
        X = X.where(X.notna(), np.nan)
    return X


def follows_output(method: Method) -> Method:
    """A method whose rows of features become frames when `set_output` asks for them."""

    @wraps(method)
    def framed(self: Any, *arguments: Any, **words: Any) -> Any:
        found = method(self, *arguments, **words)
        held = getattr(self, "_sklearn_output_config", {})
        asked = held.get("transform", get_config()["transform_output"])
        if asked == "default":
            return found
        given = arguments[0] if arguments else next(iter(words.values()))
        if isinstance(found, tuple):
            return tuple(_framed(self, given, rows, asked) for rows in found)
        return _framed(self, given, found, asked)

    return cast("Method", framed)


def _framed(estimator: Any, given: Any, rows: Array, asked: str) -> Any:
    names = getattr(estimator, "feature_names_in_", None)
    columns = [f"x{i}" for i in range(rows.shape[1])] if names is None else list(names)
    if asked == "polars":
        return import_module("polars").DataFrame(rows, schema=columns, orient="row")
    index = given.index if _is(given, "pandas", "DataFrame") else None
    return import_module("pandas").DataFrame(rows, index=index, columns=columns)
