"""Arrays through the table of models.

Each case draws rows from a small contrastive model, changes their values, and fits a model to them.
The fit must be finite, its bound must never fall, its shares of variance must sum to one, and the
inputs must be unchanged. A second fit must agree although its rows are permuted, in other units, in
chunks, in another container or weighted, or although an earlier fit raised an error. Input that is
not a table of numbers must be refused in one sentence.
"""

import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

import contrastive_lvm as clvm
from campaign.case import Report, TroubleError, generator, pick, require, require_sentence

Array = np.ndarray
Rng = np.random.Generator
Sets = tuple[Array, Array]

# --- models -------------------------------------------------------------------------------------

FEW = clvm.EM(max_iter=40)
POSTERIOR = clvm.VariationalBayes(max_iter=40)
LONGER = 1000  # sweeps of fits that differ because they were stopped


def _linear(*sizes: Any, **settings: Any) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(*sizes, random_state=0, **settings)


MODELS: dict[str, Any] = {
    "gaussian": _linear(1, 1, inference=FEW),
    "gaussian 2 + 3": _linear(2, 3),
    "feature noise": _linear(1, 2, likelihood=clvm.Gaussian(noise="feature"), inference=FEW),
    "student_t": _linear(1, 1, likelihood="student_t", inference=FEW),
    "student_t, learned": _linear(1, 1, likelihood=clvm.StudentT(df="learn"), inference=FEW),
    "student_t, rows": _linear(1, 1, likelihood=clvm.StudentT(per="sample"), inference=FEW),
    "own noise": _linear(1, 1, likelihood=clvm.Gaussian(sets="own"), inference=FEW),
    "own feature noise": _linear(1, 1, likelihood=clvm.Gaussian("feature", "own"), inference=FEW),
    "background dimensions": _linear(1, 1, n_background=1, inference=FEW),
    "automatic": _linear(1, "auto"),
    "both automatic": _linear("auto"),
    "ard": _linear(2, 2, shared_prior="ard", target_prior="ard", inference=POSTERIOR),
    "lasso": _linear(1, 1, target_prior="group_lasso", inference=FEW),
    "horseshoe": _linear(1, 1, target_prior="horseshoe", inference=POSTERIOR),
    "no shared": _linear(2, 0, inference=FEW),
    "several starts": _linear(1, 1, n_init=2, inference=FEW),
    "mixture": _linear(2, 1, latent_prior=clvm.Mixture(2), inference=FEW),
    "covariates": _linear(1, 1, covariate_effects="own", inference=FEW),
    "several sets": clvm.MultiSetLVM(
        {"shared": 1, "target": clvm.Block(1, sets=["target"])}, inference=FEW, random_state=0
    ),
    "poisson": _linear(1, 1, likelihood="poisson", inference=FEW),
    "negative binomial": _linear(1, 1, likelihood="negative_binomial", inference=FEW),
    "binary": _linear(1, 1, likelihood="bernoulli", inference=FEW),
    "ppca": clvm.PPCA(1),
    "cpca": clvm.ContrastivePCA(1),
    "gcpca": clvm.GeneralizedContrastivePCA(2),
    "gcpca, orthogonal": clvm.GeneralizedContrastivePCA(2, method="v3", orthogonal=True),
}
COUNTS: dict[str, Callable[[Array], Array]] = {  # what such models take of any values
    "poisson": lambda X: np.rint(np.abs(X)),
    "negative binomial": lambda X: np.rint(np.abs(X)),
    "binary": lambda X: np.where(np.isnan(X), X, X > 0),
}
UNITLESS = ("lasso", "horseshoe", "cpca", "gcpca", "gcpca, orthogonal", *COUNTS)  # in given units


def fit(model: Any, X: Any, B: Any, **arguments: Any) -> Any:
    """Fit a copy of a model to two sets, or to the only one that it takes."""
    return fit_in_place(clone(model), X, B, **arguments)


def fit_in_place(model: Any, X: Any, B: Any, **arguments: Any) -> Any:
    """Fit the estimator itself."""
    rows, sets = arguments_of(model, X, B)
    return model.fit(rows, **arguments, **sets)


def arguments_of(model: Any, X: Any, B: Any) -> tuple[Any, dict[str, Any]]:
    """Return the rows to fit, and the arguments for the background where a model takes one."""
    if isinstance(model, clvm.MultiSetLVM):
        return _stacked(X, B), {"sets": ["target"] * _length(X) + ["background"] * _length(B)}
    alone = isinstance(model, clvm.PPCA) or getattr(model, "n_shared", 1) == 0
    known = {f"background_{name}": values for name, values in facts_of(model, B).items()}
    return X, {} if alone else {"background": B, **facts_of(model, X), **known}


def _stacked(X: Any, B: Any) -> Any:
    """Return the rows of both sets below each other, or those that are no table of numbers."""
    odd = [rows for rows in (X, B) if not (isinstance(rows, np.ndarray) and rows.dtype.kind == "f")]
    odd = odd or [rows for rows in (X, B) if rows.ndim != 2 or not rows.size]
    return odd[0] if odd else np.vstack([X, B])


def facts_of(model: Any, X: Any) -> dict[str, Any]:
    """Return what a model wants to know about rows of the target in every method."""
    if isinstance(model, clvm.MultiSetLVM):
        return {"sets": ["target"] * _length(X)}
    if getattr(model, "covariate_effects", "shared") == "shared":
        return {}
    return {"covariates": np.linspace(-1.0, 1.0, _length(X))[:, None] ** 2}


def _length(X: Any) -> int:
    return int(X.shape[0]) if getattr(X, "shape", ()) else len(X) if hasattr(X, "__len__") else 1


# --- values -------------------------------------------------------------------------------------


def planted(rng: Rng) -> Sets:
    """Draw rows from a contrastive model with one shared and one target dimension."""
    n, m, d = rng.integers(8, 40), rng.integers(8, 40), rng.integers(3, 9)
    S, W = rng.normal(size=(1, d)), rng.normal(size=(1, d))
    X = rng.normal(size=(n, 1)) @ S + 2.0 * rng.normal(size=(n, 1)) @ W
    B = rng.normal(size=(m, 1)) @ S
    return X + 0.3 * rng.normal(size=(n, d)), B + 0.3 * rng.normal(size=(m, d))


def _each(change: Callable[[Rng, Array], Array]) -> Callable[[Rng, Array, Array], Sets]:
    return lambda rng, X, B: (change(rng, X), change(rng, B))


def _common(change: Callable[[Rng, Array], Array]) -> Callable[[Rng, Array, Array], Sets]:
    """Change both sets alike, as rows of one table."""

    def both(rng: Rng, X: Array, B: Array) -> Sets:
        changed = change(rng, np.vstack([X, B]))
        return changed[: len(X)], changed[len(X) :]

    return both


def _missing(rng: Rng, X: Array) -> Array:
    return np.where(rng.random(X.shape) < rng.uniform(0.0, 0.7), np.nan, X)


def _put(rng: Rng, X: Array, value: float) -> Array:
    X = X.copy()
    X[rng.integers(len(X)), rng.integers(X.shape[1])] = value
    return X


def _rows(rng: Rng, X: Array, value: float) -> Array:
    X = X.copy()
    X[rng.random(len(X)) < 0.3] = value
    return X


def _column(rng: Rng, X: Array, change: Callable[[Array], Any]) -> Array:
    X, j = X.copy(), rng.integers(X.shape[1])
    X[:, j] = change(X[:, j])
    return X


def _rank(rng: Rng, X: Array, k: int) -> Array:
    U, s, V = np.linalg.svd(X, full_matrices=False)
    return np.asarray((U[:, :k] * s[:k]) @ V[:k])


VALUES: dict[str, Callable[[Rng, Array, Array], Sets]] = {
    "as drawn": lambda rng, X, B: (X, B),
    "missing entries": _each(_missing),
    "empty rows": _each(lambda rng, X: _rows(rng, X, np.nan)),
    "an empty column": _common(lambda rng, X: _column(rng, X, lambda x: np.nan)),
    "a column observed once": _common(
        lambda rng, X: _column(rng, X, lambda x: np.where(np.arange(len(x)) == 0, x, np.nan))
    ),
    "a constant column": _common(lambda rng, X: _column(rng, X, lambda x: 3.0)),
    "a column twice": _common(lambda rng, X: np.column_stack([X, X[:, 0]])),
    "rows of zeros": _each(lambda rng, X: _rows(rng, X, 0.0)),
    "zeros": lambda rng, X, B: (0.0 * X, 0.0 * B),
    "a constant background": lambda rng, X, B: (X, np.full_like(B, B[0, 0])),
    "a constant target": lambda rng, X, B: (np.ones_like(X), B),
    "equal rows": _each(lambda rng, X: np.repeat(X[:1], len(X), axis=0)),
    "a single entry": lambda rng, X, B: (_put(rng, 0.0 * X, 1.0), 0.0 * B),
    "rank one": _each(lambda rng, X: _rank(rng, X, 1)),
    "rank two": _each(lambda rng, X: _rank(rng, X, 2)),
    "few rows": lambda rng, X, B: (X[: rng.integers(1, 4)], B[: rng.integers(1, 4)]),
    "one feature": lambda rng, X, B: (X[:, :1], B[:, :1]),
    "two features": lambda rng, X, B: (X[:, :2], B[:, :2]),
    "wide": _each(lambda rng, X: np.tile(X[:6], 6) + rng.normal(size=(6, 6 * X.shape[1]))),
    "an offset": _common(lambda rng, X: X + 10.0 ** rng.integers(1, 11)),
    "offsets of columns": _common(lambda rng, X: X + 10.0 ** rng.uniform(0, 9, X.shape[1])),
    "units of columns": _common(lambda rng, X: X * 10.0 ** rng.uniform(-6, 6, X.shape[1])),
    "small": _common(lambda rng, X: X * 10.0 ** -rng.integers(3, 30)),
    "large": _common(lambda rng, X: X * 10.0 ** rng.integers(3, 30)),
    "very small": _common(lambda rng, X: X * 10.0 ** -rng.integers(30, 307)),
    "very large": _common(lambda rng, X: X * 10.0 ** rng.integers(30, 306)),
    "subnormal": _common(lambda rng, X: X * 1e-310),
    "an outlier": lambda rng, X, B: (_put(rng, X, 10.0 ** rng.integers(3, 16)), B),
    "an enormous outlier": lambda rng, X, B: (_put(rng, X, 10.0 ** rng.integers(16, 300)), B),
    "heavy tails": _each(lambda rng, X: X * rng.standard_cauchy(X.shape)),
    "whole numbers": _each(lambda rng, X: np.rint(3.0 * X)),
    "negative zeros": _each(lambda rng, X: np.where(rng.random(X.shape) < 0.3, -0.0, X)),
}

# --- containers ---------------------------------------------------------------------------------


def _memory_map(X: Array) -> Array:
    file = Path(tempfile.mkdtemp(dir=SCRATCH[0])) / "rows.npy"
    np.save(file, X)
    return np.asarray(np.lib.format.open_memmap(file, mode="r"))


def _dask(X: Array) -> Any:
    return import_module("dask.array").from_array(X, chunks=(max(1, len(X) // 3), -1))


def _polars(X: Array) -> Any:
    return import_module("polars").DataFrame({f"c{j}": X[:, j] for j in range(X.shape[1])})


def _strided(X: Array) -> Array:
    wide = np.full((2 * len(X), 2 * X.shape[1]), 7.0)
    wide[::2, ::2] = X
    return wide[::2, ::2]


def _frozen(X: Array) -> Array:
    X = X.copy()
    X.flags.writeable = False
    return X


SCRATCH: list[str] = [tempfile.gettempdir()]
FORMS: dict[str, Callable[[Array], Any]] = {
    "column order": np.asfortranarray,
    "strided": _strided,
    "reversed": lambda X: X[::-1].copy()[::-1],
    "read-only": _frozen,
    "big-endian": lambda X: X.astype(">f8"),
    "long double": lambda X: X.astype(np.longdouble),
    "lists": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "objects": lambda X: X.astype(object),
    "frame": lambda X: pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])]),
    "frame with an index": lambda X: pd.DataFrame(X, index=[f"r{i}" for i in range(len(X))]),
    "nullable frame": lambda X: pd.DataFrame(X).convert_dtypes(convert_integer=False),
    "polars": _polars,
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
    "coo": sparse.coo_array,
    "dask": _dask,
    "memory map": _memory_map,
    "masked": lambda X: np.ma.array(np.where(np.isnan(X), -999.0, X), mask=np.isnan(X)),
}

# What is no table of real numbers.
BAD: dict[str, Callable[[Array], Any]] = {
    "generator": lambda X: (row for row in X),
    "dict": lambda X: {"a": 1.0},
    "scalar": lambda X: 3.0,
    "None": lambda X: None,
    "text": lambda X: "rows",
    "complex": lambda X: X + 1j,
    "words": lambda X: [*X.astype(str).astype(object).tolist()[:-1], ["a"] * X.shape[1]],
    "bytes": lambda X: np.full(X.shape, b"1"),
    "dates": lambda X: np.full(X.shape, np.datetime64("2020-01-01")),
    "durations": lambda X: np.full(X.shape, np.timedelta64(1, "s")),
    "date objects": lambda X: np.full(X.shape, datetime(2020, 1, 1)),  # noqa: DTZ001
    "one dimension": lambda X: X[:, 0],
    "three dimensions": lambda X: X[:, :, None],
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "ragged lists": lambda X: [[1.0, 2.0], [1.0]],
    "infinity": lambda X: np.where(np.arange(X.size).reshape(X.shape) == 1, np.inf, X),
    "structured": lambda X: np.zeros(len(X), dtype=[("a", float), ("b", float)]),
    "frame of dates": lambda X: pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * len(X))}),
    "frame of words": lambda X: pd.DataFrame({"a": ["x"] * len(X)}),
    "infinite csr": lambda X: sparse.csr_array(np.where(X > 0, np.inf, 0.0)),
    "complex csr": lambda X: sparse.csr_array(X + 1j),
    "a class": lambda X: object(),
    "all missing": lambda X: np.full(X.shape, np.nan),
}

# --- invariants ---------------------------------------------------------------------------------


class Found(NamedTuple):
    """What a fit found, as numbers that do not depend on the signs of its dimensions."""

    bound: float
    n_target: int
    n_shared: int
    reconstruction: Array  # of the target's rows


def found(model: Any, X: Array) -> Found:
    """Read what a fitted model found, and apply it to the plain rows of the target."""
    target, shared = (getattr(model, name, 0) for name in ("n_target_", "n_shared_"))
    if hasattr(model, "reconstruct"):
        rebuilt = model.reconstruct(X, **facts_of(model, X))
    elif hasattr(model, "objective_values_"):
        rebuilt = _of_distinct_directions(model, X)
    else:
        latents = model.transform(X)
        rebuilt = model.inverse_transform(latents) if hasattr(model, "impute") else np.abs(latents)
    return Found(float(getattr(model, "lower_bound_", 0.0)), target, shared, np.asarray(rebuilt))


def _of_distinct_directions(model: Any, X: Array) -> Array:
    """Return what the first direction projects rows on, in units of X; nothing where it is not one.

    All directions in which only one of the sets varies have the same objective, and those that the
    background lacks a ratio that is a matter of rounding.
    """
    first, second = model.objective_values_
    distinct = 1e-3 * abs(first) < first - second < 1e6
    return np.abs(model.transform(X)[:, 0]) * np.nanstd(X) if distinct else np.zeros(0)


SHARES = ("target_variance_ratio_", "shared_variance_ratio_", "noise_variance_ratio_")
NUMBERS = (
    *SHARES,
    *("target_components_", "shared_components_", "components_", "mean_", "background_mean_"),
    *(
        "noise_variance_",
        "lower_bounds_",
        "lower_bound_",
        "feature_relevance_",
        "explained_variance_",
    ),
)


def _numbers(model: Any, name: str, default: float = 0.0) -> Array:
    """Return a fitted attribute, of all sets or blocks if it is a dict, as one array."""
    value = getattr(model, name, default)
    parts = value.values() if isinstance(value, dict) else [value]
    return np.concatenate([np.ravel(np.asarray(part, dtype=float)) for part in parts])


def require_sane(model: Any, X: Array) -> None:
    """Require finite results, a bound that never falls, and shares that sum to one."""
    for name in NUMBERS:
        require(np.isfinite(_numbers(model, name)).all(), f"{name} is not finite")
    require((_numbers(model, "noise_variance_") >= 0).all(), "negative noise")
    bounds = np.asarray(getattr(model, "lower_bounds_", [0.0]), dtype=float)
    fall = float(np.max(bounds[:-1] - bounds[1:], initial=0.0))
    require(fall <= 1e-9 * (1.0 + np.abs(bounds).max()), f"the bound falls by {fall:.2g}")
    if hasattr(model, "noise_variance_ratio_"):
        shares = np.concatenate([np.atleast_1d(getattr(model, name)) for name in SHARES])
        whole = abs(shares.sum() - 1.0) < 1e-8 or not shares.any()  # counts may have no loadings
        require(whole, f"shares sum to {shares.sum()}")
        require((shares >= 0).all(), "a share is negative")
    for name in ("transform", "score_samples", "impute"):
        method = getattr(model, name, None)
        values = 0.0 if method is None else method(X, **facts_of(model, X))
        require(np.isfinite(values).all(), f"{name} is not finite")


def require_same(one: Found, other: Found, X: Array, tolerance: float, how: str) -> None:
    """Require that two fits found the same."""
    sizes = ((one.n_target, one.n_shared), (other.n_target, other.n_shared))
    require(sizes[0] == sizes[1], f"{how}: {sizes[0]} dimensions become {sizes[1]}")
    apart = abs(one.bound - other.bound) / (abs(one.bound) + X.size)
    require(apart <= tolerance, f"{how}: the bound {one.bound:.8g} becomes {other.bound:.8g}")
    spread = float(np.nanstd(X)) or 1.0
    moved = np.abs(one.reconstruction - other.reconstruction).max(initial=0.0) / spread
    require(moved <= 1e3 * tolerance, f"{how}: reconstructions move by {moved:.2g} deviations")


# Ways of fitting a second time that must not matter: they return the second fit.


def permuted(rng: Rng, model: Any, X: Array, B: Array) -> Any:
    """Fit the rows in another order."""
    return fit(model, X[rng.permutation(len(X))], B[rng.permutation(len(B))])


def chunked(rng: Rng, model: Any, X: Array, B: Array) -> Any:
    """Fit rows in Dask chunks of random sizes."""
    da, sets = import_module("dask.array"), []
    for rows in (X, B):
        cuts = np.sort(rng.integers(0, len(rows) + 1, size=3))
        sizes = np.diff([0, *cuts, len(rows)])
        sets.append(da.from_array(rows, chunks=(tuple(int(s) for s in sizes if s), -1)))
    return fit(model, *sets)


def doubled(rng: Rng, model: Any, X: Array, B: Array) -> Any:
    """Fit each row twice with half its weight."""
    if not isinstance(model, clvm.ContrastiveLVM):
        return fit(model, X, B)
    words = {"sample_weight": np.full(2 * len(X), 0.5)}
    if model.n_shared != 0:
        words["background_sample_weight"] = np.full(2 * len(B), 0.5)
    return fit(model, np.repeat(X, 2, axis=0), np.repeat(B, 2, axis=0), **words)


def refitted(rng: Rng, model: Any, X: Array, B: Array) -> Any:
    """Fit after a fit to something else was refused, which must leave no trace."""
    own, (other, background) = clone(model), planted(rng)
    name, bad = pick(rng, BAD)
    state = dict(vars(own))
    try:
        fit_in_place(own, bad(other), background)
    except Exception:
        require(vars(own).keys() == state.keys(), f"a refused fit ({name}) leaves attributes")
    else:
        raise TroubleError(f"{name} is answered")
    with suppress(NotFittedError):
        own.transform(other, **facts_of(own, other))
        raise TroubleError(f"a refused fit ({name}) can transform")
    return fit_in_place(own, X, B)


def saved(rng: Rng, model: Any, X: Array, B: Array) -> Any:
    """Fit, save and load."""
    file = Path(tempfile.mkdtemp(dir=SCRATCH[0])) / "model.clvm"
    fit(model, X, B).save(file)
    return clvm.load_model(file)


def contained(rng: Rng, model: Any, X: Array, B: Array) -> Any:
    """Fit the rows in another container."""
    (_, one), (_, other) = pick(rng, FORMS), pick(rng, FORMS)
    if one is not other and rng.random() < 0.8:
        other = one
    return fit(model, one(X), other(B))


def rescaled(rng: Rng, model: Any, X: Array, B: Array) -> Any:
    """Fit in units that differ by a power of two, which rounds nothing."""
    return fit(model, X * 2.0**SHIFT, B * 2.0**SHIFT)


SHIFT = -10
TWINS: dict[str, tuple[Callable[[Rng, Any, Array, Array], Any], float]] = {
    "permuted rows": (permuted, 1e-6),
    "Dask chunks": (chunked, 1e-7),
    "weights": (doubled, 1e-6),
    "after a refused fit": (refitted, 1e-12),
    "saved and loaded": (saved, 1e-12),
    "another container": (contained, 1e-7),
    "other units": (rescaled, 1e-6),
}


# A test by random permutations, a mixture that begins at random and covariates by position depend
# on the order of rows; rows of several sets are one table.
LEFT_OUT = {
    **dict.fromkeys(("both automatic", "mixture", "covariates"), ("permuted rows", "weights")),
    "several sets": ("Dask chunks", "another container"),
}


def run(number: int) -> Report:
    """Fit one input."""
    rng = generator("arrays", number)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        SCRATCH[0] = folder
        warnings.simplefilter("error")  # NumPy's warnings come from the inside
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        return _bad(rng) if rng.random() < 0.15 else _strange(rng)


def _bad(rng: Rng) -> Report:
    (name, bad), (kind, model), (X, B) = pick(rng, BAD), pick(rng, MODELS), planted(rng)
    first = kind in ("no shared", "ppca") or rng.random() < 0.5
    if not first and name == "None":
        return Report("refused: None", "answered")  # some models need no background
    try:
        fit(model, bad(X) if first else X, B if first else bad(B))
    except Exception as error:
        require_sentence(error)
        return Report(f"refused: {name}", "refused")
    raise TroubleError(f"{name} is answered by {kind}")


def _strange(rng: Rng) -> Report:
    (values, change), (kind, model) = pick(rng, VALUES), pick(rng, MODELS)
    X, B = change(rng, *planted(rng))
    X, B = (COUNTS[kind](rows) if kind in COUNTS else rows for rows in (X, B))
    left_out = LEFT_OUT.get(kind, ())
    twins = {name: twin for name, twin in TWINS.items() if name not in left_out}
    twin, (again, _) = pick(rng, twins)
    before = X.copy(), B.copy()
    try:
        own = fit(model, X, B)
    except Exception as error:
        require_sentence(error)
        return Report(values, "refused")
    require_sane(own, X)
    for given, copy in zip((X, B), before, strict=True):
        require(np.array_equal(given, copy, equal_nan=True), "an input was changed")
    rows, sets = arguments_of(model, X, B)
    both = clone(model).fit_transform(rows, **sets)[: len(X)]
    apart = np.allclose(both, own.transform(X, **facts_of(model, X)), rtol=1e-8, atol=0.0)
    require(apart, "fit_transform differs")
    if twin != "other units" or kind not in UNITLESS:
        other = again(rng, model, X, B)
        try:
            _compare(kind, twin, own, other, (X, B))
        except TroubleError:
            if _ended(own, other) or getattr(model, "inference", None) not in (FEW, POSTERIOR):
                raise
            longer = clone(model).set_params(inference=replace(model.inference, max_iter=LONGER))
            _compare(kind, twin, fit(longer, X, B), again(rng, longer, X, B), (X, B))
    return Report(values, "answered")


def _compare(kind: str, twin: str, own: Any, other: Any, sets: Sets) -> None:
    """Require that the rows and their twin have the same fit."""
    X, used = sets[0], sets[:1] if kind in ("no shared", "ppca") else sets
    second = _in_units(found(other, _units(twin) * X), twin, used)
    tolerance = max(TWINS[twin][1], _least_tolerance(own, other, used))
    require_same(found(own, X), second, X, tolerance, f"{kind}, {twin}")


def _ended(*models: Any) -> bool:
    return all(getattr(model, "converged_", True) for model in models)


def _least_tolerance(own: Any, other: Any, sets: tuple[Array, ...]) -> float:
    """Return how far two fits may differ for reasons of their own.

    A fit that was stopped stands somewhere on its way, and rounding decides where. Where the noise
    is at its least, the likelihood has no maximum but for this limit, and rises ever more slowly.
    """
    if not _ended(own, other):
        return 1e-2
    centred = np.vstack([rows - np.nanmean(rows, axis=0) for rows in sets])
    unit = float(np.nanstd(centred)) or 1.0
    variance = np.nanvar(centred / unit, axis=0)
    noise = _numbers(own, "noise_variance_", np.inf) / unit / unit
    least = variance if len(noise) == len(variance) else variance.mean()
    return 1e-2 if (noise <= 1e-4 * least).any() else 0.0


def _units(twin: str) -> float:
    return 2.0**SHIFT if twin == "other units" else 1.0


def _in_units(other: Found, twin: str, sets: Iterable[Array]) -> Found:
    """Return what a fit in other units found, in the units of the first."""
    if twin != "other units":
        return other
    entries = sum(np.count_nonzero(~np.isnan(rows)) for rows in sets)
    bound = other.bound + entries * np.log(_units(twin)) if other.bound else 0.0
    return other._replace(bound=bound, reconstruction=other.reconstruction / _units(twin))
