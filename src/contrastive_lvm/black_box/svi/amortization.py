"""First parameters of a variational family, and what encoders see of rows."""

from functools import lru_cache
from typing import Any

import numpy as np

from contrastive_lvm._jax import load, module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.initialization import Start
from contrastive_lvm.black_box.sites import first_values, floors, units
from contrastive_lvm.black_box.svi.guides import FIRST_SCALE_SD, Family, Scaling
from contrastive_lvm.black_box.svi.svi_batches import Rows
from contrastive_lvm.likelihoods.student_t import StudentT

SAMPLE = 2000  # rows that encoders begin with


@lru_cache(maxsize=16)
def row_features(likelihood: Any, n_features: int, *, gaps: bool) -> Any:
    """A function of rows: standardised values, logarithms of counts, and gaps when there are any.

    The same function for the same arguments, so that what was compiled with it is found again.
    """
    noisy, sized = likelihood.noisy_columns(n_features), likelihood.sized_columns(n_features)

    def features(x: Any, log_sizes: Any, centre: Any, spread: Any) -> Any:
        jnp = load().jnp
        missing = jnp.isnan(x)
        shrunk = jnp.where(noisy, 0.0, x) * jnp.exp(-jnp.where(sized, log_sizes[:, None], 0.0))
        value = (jnp.where(noisy, x, jnp.log1p(shrunk)) - centre) / spread
        value = jnp.where(missing, 0.0, value).astype(x.dtype)
        return jnp.concatenate([value, missing.astype(x.dtype)], axis=1) if gaps else value

    return features


def scaling_of(begin: Start, rows: Rows, features: Any, rng: np.random.Generator) -> Scaling:
    """Units and limits of parameters; centre and spread of what encoders see."""
    inputs: tuple[Any, ...] = ()
    if features is not None:
        x, sizes = rows.some(0, rng, SAMPLE)
        seen = np.array(features(x, sizes, np.zeros(1), np.ones(1)))[:, : rows.n_features]
        seen[np.isnan(x)] = np.nan
        inputs = (np.nanmean(seen, axis=0), np.nanstd(seen, axis=0) + 1e-3)
    scaling: Scaling = cast(Scaling(units(begin), floors(begin), inputs), rows.dtype)
    return scaling


def first_parameters(
    family: Family,
    begin: Start,
    rows: Rows,
    scaling: Scaling,
    *,
    augmented: bool,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """Parameters at a start."""
    values = first_values(begin, augmented=augmented)
    parameters: dict[str, Any] = {
        "globals": family.first_globals(values, units(begin)),
        "rows": [],
        "scales": [],
    }
    for which, (h, spread) in enumerate(zip(begin.latents, begin.spreads, strict=True)):
        if family.features is None:
            parameters["rows"].append(family.first_rows(h, spread))
        else:
            at = rng.permutation(len(h))[:SAMPLE]
            x, sizes = rows.at(which, at)
            inputs = np.asarray(family.features(x, sizes, *scaling.inputs), dtype=np.float64)
            parameters["rows"].append(family.first_encoder(inputs, h[at], spread, rng))
        likelihood = begin.model.likelihood
        if augmented and isinstance(likelihood, StudentT):
            width = rows.n_features if likelihood.per == "element" else 1
            parameters["scales"].append(_first_scales((len(h), width)))
    cast_parameters: dict[str, Any] = cast(parameters, rows.dtype)
    return cast_parameters


def _first_scales(shape: tuple[int, int]) -> dict[str, Array]:
    return {"loc": np.zeros(shape), "log_sd": np.full(shape, np.log(FIRST_SCALE_SD))}


def cast(tree: Any, dtype: Any) -> Any:
    """All arrays of a tree in one precision."""
    return module("jax").tree.map(lambda x: np.asarray(x, dtype=dtype), tree)
