"""Checks after a fit: whether the assumptions of the model suit the two sets.

The default model has one noise variance, and gives the background no dimension of its own.

- `noise_ratio`: the target's noise variance over the background's, along the weaker half of the
  principal directions of both sets together outside the fitted dimensions, so that structure that
  neither block has found is not mistaken for noise. It differs beyond chance if its logarithm is
  far from zero in units of `sqrt(2 / (k n) + 2 / (k m))`, for k directions.
- `excess`: the largest variance of the background, in any direction, over that of the model. It is
  structure of the background alone if a column there would gain several times what a column must
  gain (`ard_rank.price`), and the target has no such excess in the same direction.
- Unequal noise: the variance of a feature given all others, which is its noise plus what the others
leave unknown of its latents. Differences between features that both sets have in common are not
chance, even with heavy tails (`_unequal_noise`). This comes first, since a model with one noise
variance seems to have too few shared dimensions if noise is unequal.
- Too few shared dimensions: the background varies along target dimensions more than the model
  expects. Where it varies four times as much, and a column would gain three times what it must, the
  target dimensions hold what the sets share. The gain was at most 1.2 times that with right and
  automatic sizes, and 3.5 to 25 times with one or two dimensions too few (20 data sets of 8 kinds,
  unless the contrast outweighs what is shared).

All but the last are reported only if they matter: the target dimensions of the better model must
differ. In 20 simulated data sets of each kind (300 + 300 rows of 30 features, 4 shared and 2 target
dimensions; right and automatic sizes, 60 rows, 100 and 400 rows, t noise with 5 degrees of freedom,
no contrast, 5 target dimensions) the ratio stayed within .78 and 1.18, its deviation within 3.3,
and the gain within .81 of the price; with one dimension of the background's own and `n_shared=4`
the gain was 13 to 41 times the price. Of 640 others without either, also of 200 features, none gave
a warning; of 30 with background noise four times the target's 29 did, and of 30 with a dimension of
the background's own all. `docs/fit_checks.md` has a table of all warnings.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr

from contrastive_lvm.arrays import EPS, Array
from contrastive_lvm.coordinate_ascent.ard_rank import price
from contrastive_lvm.coordinate_ascent.engine import CoordinateAscent
from contrastive_lvm.coordinate_ascent.starts import leading_eigenpairs
from contrastive_lvm.inference import Engine
from contrastive_lvm.likelihoods.base import CONSTANT, FLOOR
from contrastive_lvm.model import LoadingBlock, Model
from contrastive_lvm.posterior import Posterior
from contrastive_lvm.rows.scatter import MOST_FEATURES as MOST_FORMED
from contrastive_lvm.rows.scatter import DenseScatter
from contrastive_lvm.rows.threads import one_blas_thread

if TYPE_CHECKING:
    from contrastive_lvm.rows.data import Data

MOST_FEATURES = 100  # that are compared, evenly spaced; takes a tenth of the time of a small fit
LEAST_RATIO, MOST_RATIO = 1.5, 1e3  # of noise variances that differ; beyond, sets differ in units
FAR = 6.0  # standard deviations of the logarithm of that ratio
SEVERAL = 3.0  # times the gain that a column needs
# Share of the target loadings' variance outside the target dimensions of a better model. In 10 data
# sets each: .07 to .69 with background noise four times the target's and weak target dimensions,
# where R^2 of the target latents rises from .45 to .63 with noise of each set's own; up to .04 with
# twice, up to .11 with target noise four times the background's, and less than .001 with strong
# target dimensions, where it changes nothing; .12 to .71 in 15 with a dimension of the background's
# own and n_shared=4.
TURNED = 0.05
ALONG_TARGET = 4.0  # ratio of variances; noise unequal by feature reached 3.3 in examples
UNEQUAL = 2.5  # noise of features, the 90 % over the 10 % quantile
DECILES = 2.563  # distance of these quantiles of a standard normal variable
CHANCE = 0.001  # one-sided level of the rank correlation between the noise of the sets
LEAST_ROWS = 1.5  # of a set for each feature
FEWEST = 7  # features; the ranks of fewer agree by chance in more than one of 1,000
AT_FLOOR = 10.0  # times the least noise variance that a fit allows
MOST_SWEEPS = 300  # of that model; 100 were too few in one of eleven data sets


class SetCovariance(NamedTuple):
    """The covariance of a set's rows, and their number."""

    matrix: Array  # (D, D) of the features that are compared
    n_rows: float


class BackgroundCheck(NamedTuple):
    """The noise and the structure of the background, as the rows show them."""

    noise_ratio: float  # of the target's noise variance to the background's
    noise_differs: bool
    excess: float  # of the background's variance over what the model expects, at most
    has_own_structure: bool


def some_features(n_features: int) -> npt.NDArray[np.intp]:
    """Choose the features that are compared."""
    return np.linspace(0, n_features - 1, min(n_features, MOST_FEATURES)).astype(np.intp)


def check_background(
    posterior: Posterior, target: SetCovariance, background: SetCovariance
) -> BackgroundCheck:
    """Compare the covariances of some features in both sets with what a fitted model expects."""
    n_features = posterior.noise_variance.shape[-1]
    if n_features > MOST_FEATURES:
        chosen = some_features(n_features)
        posterior = posterior._replace(
            loadings={name: L[chosen] for name, L in posterior.loadings.items()},
            noise_variance=posterior.noise_variance[..., chosen],
        )
    (ratio, deviation), (excess, gain, both) = (
        _noise(posterior, target, background),
        _excess(posterior, target, background),
    )
    differs = abs(deviation) > FAR and LEAST_RATIO <= max(ratio, 1.0 / ratio) <= MOST_RATIO
    alone = not differs and both < 1.0 + (excess - 1.0) / 4.0
    own = alone and gain > SEVERAL * price(background.n_rows, len(target.matrix))
    return BackgroundCheck(float(ratio), bool(differs), float(excess), bool(own))


def _noise(p: Posterior, target: SetCovariance, background: SetCovariance) -> tuple[float, float]:
    """Return the ratio of noise variances, and the deviation of its logarithm from zero."""
    root = np.sqrt(np.atleast_2d(p.noise_variance).mean(axis=0))
    L = np.hstack(list(p.loadings.values())) / root[:, None]
    rest = np.linalg.qr(L, mode="complete")[0][:, L.shape[1] :] / root[:, None]
    own, other = (rest.T @ s.matrix @ rest for s in (target, background))
    pooled = target.n_rows * own + background.n_rows * other
    weak = np.linalg.eigh(pooled)[1][:, : max(1, len(pooled) // 2)]
    a, b = (float((weak * (s @ weak)).sum()) for s in (own, other))
    if not (a > 0 and b > 0):
        return 1.0, 0.0
    error = np.sqrt(2.0 / weak.shape[1] * (1.0 / target.n_rows + 1.0 / background.n_rows))
    return a / b, float(np.log(a / b) / error)


def _excess(
    p: Posterior, target: SetCovariance, background: SetCovariance
) -> tuple[float, float, float]:
    """Return the background's largest excess, the gain of a column there, and the target's excess.

    With `C = R R'` the model's covariance and `S` the rows', the largest eigenvalue of
    `R^-1 S R^-T` and, along its eigenvector, the same ratio of the target.
    """
    covariances = []
    noise = np.atleast_2d(p.noise_variance)[[0, -1]]
    for psi, blocks in zip(noise, (("shared", "target"), ("shared", "background")), strict=True):
        L = np.hstack([p.loadings[name] for name in blocks if name in p.loadings])
        covariances.append(L @ L.T + np.diag(psi))
    expected, own = covariances
    root = np.linalg.inv(np.linalg.cholesky(own))
    whitened = root @ background.matrix @ root.T
    ratios, U = leading_eigenpairs(whitened.__matmul__, len(own), 1)
    excess, u = max(float(ratios[0]), 1.0), root.T @ U[:, 0]
    gain = 0.5 * background.n_rows * (excess - 1.0 - np.log(excess))
    return excess, gain, float((u @ target.matrix @ u) / (u @ expected @ u))


def objections(
    model: Model, engine: Engine, data: "Data | None", posterior: Posterior
) -> list[str]:
    """Return sentences that say what to change: about its noise, its sizes and its background.

    The model has its priors in units of the data; its blocks may still be automatic.
    """
    if data is None or not isinstance(engine, CoordinateAscent) or data.linearized is not None:
        return []
    automatic, sized = any(block.automatic for block in model.blocks), model
    if automatic:
        sized = model.with_sizes({name: L.shape[1] for name, L in posterior.loadings.items()})
    with one_blas_thread:
        none_left, sets = None, _covariances(sized, data)
        if not model.likelihood._is_isotropic:  # one variance cannot vanish for some features
            none_left = _no_noise_left(sized, data, posterior)
        elif sets and (unequal := _unequal_noise(sets)) >= UNEQUAL:
            said = _noise_by_feature(model, engine, data, posterior, unequal)
            if said is not None:  # it makes the other checks fail too
                return [said]
        found = [none_left, _too_few_shared(sized, data, posterior, automatic=automatic)]
        if found == [None, None] and sets:
            background = check_background(posterior, *sets)
            if background.noise_differs or background.has_own_structure:
                found.append(_better_model(sized, engine, data, posterior, background))
    return list(filter(None, found))


def _at_floor(model: Model, data: "Data", posterior: Posterior) -> npt.NDArray[np.bool_]:
    """Tell which features have no noise left in one of the sets, although they vary."""
    psi, least = np.atleast_2d(posterior.noise_variance), CONSTANT * data.variance.mean()
    if model.likelihood._is_isotropic or psi.shape[1] != len(data.variance):
        return np.zeros(psi.shape[1], dtype=bool)
    least_noise = AT_FLOOR * FLOOR * data.variance
    return np.asarray((psi <= least_noise).any(axis=0) & (data.variance > least))


def _no_noise_left(model: Model, data: "Data", posterior: Posterior) -> str | None:
    n = int(_at_floor(model, data, posterior).sum())
    if n == 0:
        return None
    return (
        f"{n} of {data.n_features} features have no noise left, because a dimension describes each "
        "of them alone; use fewer dimensions (n_shared, n_target), or one noise variance for all "
        "features (likelihood='gaussian')."
    )


def _too_few_shared(
    model: Model, data: "Data", posterior: Posterior, *, automatic: bool
) -> str | None:
    """Object if the background varies along target dimensions, which then hold what it shares.

    With `C` the model's covariance of the background and `S` that of its rows, the largest ratio
    `u' S u / u' C u` over the span of `C^-1 W`.
    """
    W, S = (posterior.loadings.get(name) for name in ("target", "shared"))
    at = len(model.sets) - 1
    sketched = data.sketch is not None and data.n_features <= MOST_FORMED
    dense = at > 0 and isinstance(data.sets[at], DenseScatter)
    if W is None or S is None or at == 0 or not (dense or sketched):
        return None
    source, psi = data.covariances()[at], np.atleast_2d(posterior.noise_variance)[-1][:, None]
    if not W.any() or len(source.variance) != len(W) or model.covariates:
        return None
    L = np.hstack([S, *(posterior.loadings[n] for n in ("background",) if n in posterior.loadings)])
    inner = np.eye(L.shape[1]) + L.T @ (L / psi)
    U = W / psi - (L / psi) @ np.linalg.solve(inner, L.T @ (W / psi))
    ratio = float(
        np.linalg.eigvals(np.linalg.lstsq(U.T @ W, U.T @ source.product(U))[0]).real.max()
    )
    gain = 0.5 * source.weight * (ratio - 1.0 - np.log(max(ratio, 1.0)))
    if ratio < ALONG_TARGET or gain < SEVERAL * price(source.weight, data.n_features):
        return None
    remedy = "a larger number" if automatic else "n_shared='auto' or a larger number"
    return (
        f"n_shared={S.shape[1]} is too few: the background varies {ratio:.2g} times as much as the "
        f"model expects along a target dimension; use {remedy}, or n_background=1 or more if the "
        "background has structure of its own."
    )


def _noise_by_feature(
    model: Model,
    engine: CoordinateAscent,
    data: "Data",
    posterior: Posterior,
    unequal: float,
) -> str | None:
    """Object if noise that differs by feature makes the target dimensions point elsewhere.

    A model with a noise variance of each feature must have enough shared dimensions itself.
    """
    noise = model.likelihood._with_feature_noise()
    if noise is None:
        return None
    automatic = any(block.automatic for block in model.blocks)
    better = engine._sized(replace(model, likelihood=noise), data)
    if not _is_identified(better, data.n_features):
        return None
    other = _quick_fit(better, engine, data, posterior)
    if other is None or _too_few_shared(better, data, other, automatic=automatic):
        return None
    return (
        f"The noise of some features has {unequal:.2g} times the variance of others, which "
        f"changes the direction of the target dimensions; use likelihood={better.likelihood!r}."
    )


def _better_model(
    model: Model,
    engine: CoordinateAscent,
    data: "Data",
    posterior: Posterior,
    found: BackgroundCheck,
) -> str | None:
    """Return a sentence about a model whose target dimensions point elsewhere, or None."""
    own_noise = model.likelihood._with_own_noise() if found.noise_differs else None
    if own_noise is not None:
        better = replace(model, likelihood=own_noise)
        said = f"The noise of the target is {found.noise_ratio:.2g} times that of the background"
        remedy = f"likelihood={better.likelihood!r}"
    elif found.has_own_structure and "background" not in posterior.loadings:
        own = LoadingBlock("background", 1, ("background",), model.blocks[0].prior)
        better = replace(model, blocks=(*model.blocks, own))
        said = (
            f"The background varies {found.excess:.2g} times as much as the model expects in a "
            "direction in which the target does not"
        )
        remedy = "n_background=1 or more, or a larger n_shared"
    else:
        return None
    if _quick_fit(better, engine, data, posterior) is None:
        return None
    return f"{said}, which changes the direction of the target dimensions; use {remedy}."


def _quick_fit(
    better: Model, engine: CoordinateAscent, data: "Data", posterior: Posterior
) -> Posterior | None:
    """Fit another model; None if its target dimensions are the same, or features lack noise."""
    quick = replace(engine, max_iter=min(engine.max_iter, MOST_SWEEPS))
    other = quick._run(better, data)
    if _turned(posterior, other) < TURNED or _at_floor(better, data, other).any():
        return None
    return other


def _covariances(model: Model, data: "Data") -> list[SetCovariance]:
    """Return the covariance of some features in each set; none where these checks do not apply."""
    plain = not model.drops_columns and not model.covariates and model.has_standard_latents
    if not plain or len(model.sets) != 2:
        return []
    dense = [s for s in data.sets if isinstance(s, DenseScatter)]
    if len(dense) < len(data.sets) or len(data.variance) < data.n_features:  # in a span
        return []
    if data.n_features <= MOST_FEATURES:
        return [SetCovariance(s.matrix / s.n_rows, s.n_rows) for s in dense]
    chosen = some_features(data.n_features)
    return [SetCovariance(s.matrix[chosen[:, None], chosen] / s.n_rows, s.n_rows) for s in dense]


def _unequal_noise(sets: list[SetCovariance]) -> float:
    """Return how much the noise of features differs, the 90 % over the 10 % quantile; 1 if equal.

    The variance `v` of a feature given all others is one over the diagonal of the inverse
    covariance, whatever the dimensions of a model. The errors of `ln v` are independent between the
    sets, however heavy their tails, and noise that the sets share is not: its variance over
    features is the covariance of both `ln v`, if the correlation of their ranks is beyond chance.
    """
    logs = []
    for matrix, n_rows in sets:
        values, vectors = np.linalg.eigh(matrix)
        if n_rows < LEAST_ROWS * len(values) or not values[0] > 1e-12 * values[-1]:
            return 1.0
        logs.append(-np.log(vectors**2 @ (1.0 / values)))
    n_features = len(logs[0])
    if n_features < FEWEST:
        return 1.0
    ranks = np.argsort(np.argsort(logs, axis=1), axis=1)
    apart = float(((ranks[0] - ranks[1]) ** 2).sum())
    r = 1.0 - 6.0 * apart / (n_features * (n_features**2 - 1))
    t = r * math.sqrt((n_features - 2) / max(1.0 - r**2, EPS))
    if stdtr(n_features - 2, -t) > CHANCE:
        return 1.0
    return math.exp(DECILES * math.sqrt(max(float(np.cov(logs)[0, 1]), 0.0)))


def _is_identified(model: Model, n_features: int) -> bool:
    """Tell whether covariances of the features determine a noise variance of each (Ledermann)."""
    return model.n_columns <= n_features + 0.5 - math.sqrt(2 * n_features + 0.25)


def _turned(posterior: Posterior, other: Posterior) -> float:
    """Return the share of the target loadings' variance outside those of another model."""
    W = posterior.loadings["target"]
    if not W.any():
        return 0.0
    basis = np.linalg.qr(other.loadings["target"])[0]
    return 1.0 - float(((basis.T @ W) ** 2).sum() / (W**2).sum())
