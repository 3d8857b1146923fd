"""First parameters of a guide, and the constants of the data that it uses."""

import numpy as np
from numpy.typing import DTypeLike

from contrastive_lvm._jax import AnyArray, Tree, dist, tree_map
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.initialization import StartingPoint
from contrastive_lvm.black_box.sites import initial_values, units
from contrastive_lvm.black_box.svi.amortization import LatentEncoder, initial_encoder
from contrastive_lvm.black_box.svi.guides import (
    GlobalParameters,
    Guide,
    GuideParameters,
    GuideScaling,
)
from contrastive_lvm.black_box.svi.row_gaussians import RowGaussians
from contrastive_lvm.black_box.svi.svi_batches import SviRows

FIRST_STD, FIRST_SCALE_STD = 0.05, 0.2  # of loadings in units of the data, and of other sites
FIRST_FACTOR = 0.1  # zero would be a saddle: the two factors of a product, and no gradient
SAMPLE = 2000  # rows that encoders begin with
LEAST_SPREAD = 1e-3  # added to the spread of what encoders see


def guide_scaling(
    guide: Guide, start: StartingPoint, rows: SviRows, rng: np.random.Generator
) -> GuideScaling:
    """Return units and limits of parameters, and centre and spread of what encoders see."""
    inputs: tuple[Array, ...] = ()
    if guide.features is not None:
        x, sizes = rows.some(0, rng, SAMPLE)
        seen = np.array(guide.features(x, sizes, np.zeros(1), np.ones(1)))[:, : rows.n_features]
        seen[np.isnan(x)] = np.nan
        inputs = (np.nanmean(seen, axis=0), np.nanstd(seen, axis=0) + LEAST_SPREAD)
    floor = start.model.likelihood._log_noise_floor(start.unit)
    return _cast(GuideScaling(units(start), floor, inputs), rows.dtype)


def initial_parameters(
    guide: Guide,
    start: StartingPoint,
    rows: SviRows,
    scaling: GuideScaling,
    *,
    augmented: bool,
    rng: np.random.Generator,
) -> GuideParameters:
    """Return the parameters at a start."""
    values = initial_values(start, augmented=augmented)
    width = start.model.likelihood._scale_width(rows.n_features) if augmented else 0
    latents: list[RowGaussians | LatentEncoder] = []
    scales: list[RowGaussians] = []
    for which, (h, std) in enumerate(zip(start.latents, start.latent_stds, strict=True)):
        if guide.features is None:
            latents.append(_initial_rows(h, std, correlated=guide.correlated))
        else:
            at = rng.permutation(len(h))[:SAMPLE]
            (x, sizes), (centre, spread) = rows.at(which, at), scaling.inputs
            inputs = np.asarray(guide.features(x, sizes, centre, spread), dtype=np.float64)
            encoder = initial_encoder(inputs, h[at], std, rng, correlated=guide.correlated)
            latents.append(encoder)
        if width:
            shape = (len(h), width)
            scales.append(
                RowGaussians(np.zeros(shape), np.full(shape, np.log(FIRST_SCALE_STD)), None)
            )
    first = _initial_globals(guide, values, units(start))
    return _cast(GuideParameters(first, tuple(latents), tuple(scales)), rows.dtype)


def _initial_rows(latents: Array, std: Array, *, correlated: bool) -> RowGaussians:
    N, K = latents.shape
    root = np.zeros((N, K * (K - 1) // 2)) if correlated else None
    return RowGaussians(latents, np.tile(np.log(std), (N, 1)), root)


def _initial_globals(
    guide: Guide, values: dict[str, Array], units: dict[str, Array]
) -> GlobalParameters:
    """Return parameters that give the values, with little spread."""
    points: dict[str, AnyArray] = {}
    loc: dict[str, AnyArray] = {}
    log_std: dict[str, AnyArray] = {}
    for name, site in guide.sites.items():
        real = np.broadcast_to(_real_form(guide, name, values), site.shape) / units.get(name, 1.0)
        (points if site.flat else loc)[name] = np.array(real)
        if not site.flat:
            first = FIRST_STD if name in guide.loadings else FIRST_SCALE_STD
            log_std[name] = np.full(site.shape, np.log(first))
    root = factor = None
    if guide.family == "structured" and guide.loadings:
        D, K = guide.sites[next(iter(guide.loadings))].shape[0], sum(guide.loadings.values())
        root = np.zeros((D, K * (K - 1) // 2))
    if guide.family == "full_rank":
        root = np.zeros((guide.size, guide.size))
    if guide.family == "low_rank":
        noise = np.random.default_rng(0).standard_normal((guide.size, guide.rank))
        factor = FIRST_FACTOR * noise
    return GlobalParameters(points, loc, log_std, root, factor)


def _real_form(guide: Guide, name: str, values: dict[str, Array]) -> Array:
    """Return the real-valued form of a site's value; zero where none is known."""
    if name not in values:
        return np.zeros(())
    transform, transforms = guide.sites[name].transform, dist.transforms
    if isinstance(transform, transforms.IndependentTransform):
        transform = transform.base_transform
    if isinstance(transform, transforms.ExpTransform):  # NumPy's log: nothing to compile
        return np.asarray(np.log(values[name]))
    identity = isinstance(transform, transforms.IdentityTransform)
    return values[name] if identity else np.asarray(transform.inv(values[name]))


def _cast(tree: Tree, dtype: DTypeLike) -> Tree:
    """Return a tree with all arrays in one precision."""
    return tree_map(lambda x: np.asarray(x, dtype=dtype), tree)
