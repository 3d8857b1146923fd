"""Draws from a posterior: one gauge for all of them, how well they mixed, and the way to ArviZ."""

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from contrastive_lvm._jax import module
from contrastive_lvm.arrays import Array
from contrastive_lvm.linalg import packed
from contrastive_lvm.linalg.gauge import canonical, canonical_rotation, signs

Freedom = Literal["rotation", "permutation", "sign", "none"]
ROUNDS = 20  # of matching columns
POSITIVE = ("variance", "rho2", "tau2", "df", "dispersion")  # endings of names


class Draws(NamedTuple):
    """Draws of all unobserved quantities, all in one orientation.

    `values` has the loadings of each block (`"target loadings"`) with the scales of their prior
    (`"target loadings variance"`, `"target loadings rho2"`, `"target loadings tau2"`), the latents
    of a block in each set that uses it (`"shared latents of background"`), the mean of each set
    (`"target mean"`), `"noise variance"` (`"target noise variance"` and so on where each set has
    its own), `"df"`, `"dispersion"` and `"log density"`, those that the model has. R-hat (split
    chains; Gelman et al. 2013) and the effective sample size of positive quantities are those of
    their logarithms; what does not vary has none.
    """

    values: dict[str, Array]  # (chains, draws, ...) draws by name
    rhat: dict[str, Array]  # (...) R-hat by name; empty for a single chain
    ess: dict[str, Array]  # (...) effective sample sizes by name
    divergences: int = 0  # number of divergent draws

    @property
    def worst_rhat(self) -> tuple[str, float]:
        """Return the quantity that mixed worst between chains, and its R-hat."""
        worst = {name: float(np.nanmax(value)) for name, value in self.rhat.items()}
        return max(worst.items(), key=lambda item: item[1], default=("", np.nan))

    @property
    def least_ess(self) -> tuple[str, float]:
        """Return the quantity with the fewest effective draws, and their number."""
        least = {name: float(np.nanmin(value)) for name, value in self.ess.items()}
        return min(least.items(), key=lambda item: item[1], default=("", np.nan))

    def _of_parameters(self) -> dict[str, Array]:
        """Return draws of the parameters, chain after chain, (draws, ...), without latents."""
        left_out = {name for name in self.values if " latents of " in name} | {"log density"}
        return {
            name: value.reshape(-1, *value.shape[2:])
            for name, value in self.values.items()
            if name not in left_out
        }

    def _without_latents(self) -> "Draws":
        """Leave out what grows with the rows of the fit."""
        kept = {name: v for name, v in self.values.items() if " latents of " not in name}
        return self._replace(values=kept, rhat={}, ess={})

    def _in_coordinates(self, block: str, A: Array) -> "Draws":
        """Return the draws with loadings `L A` and latents `A^-1 h` of a block."""
        turned = {f"{block} loadings": A}
        latents = [name for name in self.values if name.startswith(f"{block} latents of ")]
        turned |= dict.fromkeys(latents, np.asarray(np.linalg.inv(A).T, dtype=np.float64))
        values = {n: v @ turned[n] if n in turned else v for n, v in self.values.items()}
        rhat, ess = ({n: v for n, v in d.items() if n not in turned} for d in (self.rhat, self.ess))
        return self._replace(values=values, rhat=rhat, ess=ess)

    def to_arviz(self) -> Any:
        """Return an ArviZ `InferenceData` (a `DataTree` from 1.0 on), log densities as `lp`."""
        arviz = _arviz()
        posterior = {n: v for n, v in self.values.items() if n != "log density"}
        groups = {"posterior": posterior}
        if "log density" in self.values:
            groups["sample_stats"] = {"lp": self.values["log density"]}
        named = {name: dimensions(name) for name in posterior}
        dims = {n: names for n, names in named.items() if posterior[n].ndim == 2 + len(names)}
        if int(arviz.__version__.split(".")[0]) < 1:
            return arviz.from_dict(**groups, dims=dims)
        return arviz.from_dict(groups, dims=dims)


def dimensions(name: str) -> list[str]:
    """Return the names of the axes of one draw of a quantity.

    >>> dimensions("shared latents of target")
    ['target_row', 'shared_component']
    """
    block, is_loadings, scale = name.partition(" loadings")
    if is_loadings:
        axes = {"": ["feature", f"{block}_component"], " variance": [f"{block}_component"]}
        return axes.get(scale, [f"{block}_group"] if scale == " rho2" else [])
    block, is_latents, of_set = name.partition(" latents of ")
    if is_latents:
        return [f"{of_set}_row", f"{block}_component"]
    feature = name.endswith((" mean", "noise variance")) or name == "dispersion"
    return ["feature"] if feature else []


def _arviz() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # versions before 1.0 announce it on import
            import arviz
    except ImportError as error:
        raise ImportError(
            "to_arviz needs ArviZ, which is not installed; pip install 'contrastive-lvm[arviz]'."
        ) from error
    return arviz


def diagnosed(values: dict[str, Array], divergences: int) -> Draws:
    """Return draws of several chains with R-hat and effective sample sizes."""
    diagnostics = module("numpyro.diagnostics")
    rhat, ess = {}, {}
    for name, value in values.items():
        varies = np.ptp(value, axis=(0, 1)) > 0
        if not varies.any():
            continue
        x = np.log(value[:, :, varies]) if name.endswith(POSITIVE) else value[:, :, varies]
        rhat[name], ess[name] = np.full(varies.shape, np.nan), np.full(varies.shape, np.nan)
        rhat[name][varies] = diagnostics.split_gelman_rubin(x)
        ess[name][varies] = diagnostics.effective_sample_size(x)
    return Draws(values, rhat, ess, divergences)


def turns(L: Array, log_density: Array, freedom: Freedom) -> Array:
    """Return orthogonal matrices, (chains, draws, K, K), that bring a block into one gauge.

    Each draw, (chains, draws, D, K), is brought as close as possible to a reference by what the
    posterior cannot tell apart: a rotation (by Procrustes), or a permutation of columns with signs.
    One more rotation, the same for all draws, makes their mean canonical.
    """
    (n_chains, n_draws, D, K), n = L.shape, L.shape[0] * L.shape[1]
    flat, R = L.reshape(n, D, K), np.broadcast_to(np.eye(K), (n, K, K))
    if K and freedom == "rotation":
        R = procrustes(flat, _common_reference(flat))
        R = R @ canonical_rotation((flat @ R).mean(axis=0))
    elif K and freedom != "none":
        R = _matched(flat, flat[log_density.argmax()], permute=freedom == "permutation")
        mean = (flat @ R).mean(axis=0)
        keep = canonical_rotation(mean, keep_columns=True)
        R = R @ (keep if freedom == "permutation" else np.diag(signs(mean)))
    return R.reshape(n_chains, n_draws, K, K)


def procrustes(flat: Array, reference: Array) -> Array:
    """Return rotations, (n, K, K), that bring (n, D, K) draws closest to a reference."""
    U, _, Vt = np.linalg.svd(flat.transpose(0, 2, 1) @ reference)
    return np.asarray(U @ Vt)


def _common_reference(flat: Array) -> Array:
    """Return the leading part of the mean of `L L'`, (D, K), in canonical form."""
    n, D, K = flat.shape
    columns = flat.transpose(1, 0, 2).reshape(D, n * K)
    variances, vectors = np.linalg.eigh(columns @ columns.T / n)
    return canonical(vectors[:, -K:] * np.sqrt(np.maximum(variances[-K:], 0.0)))


def _matched(flat: Array, reference: Array, *, permute: bool) -> Array:
    """Return signed permutations that bring draws closest to their mean, from a reference."""
    R = signed_permutations(flat, reference, permute=permute)
    for _ in range(ROUNDS):
        last, R = R, signed_permutations(flat, (flat @ R).mean(axis=0), permute=permute)
        if np.array_equal(R, last):
            break
    return R


def signed_permutations(flat: Array, reference: Array, *, permute: bool = True) -> Array:
    """Return signed permutations that bring (n, D, K) draws closest to a reference."""
    products = flat.transpose(0, 2, 1) @ reference  # (n, K of the draw, K of the reference)
    K = reference.shape[1]
    chosen = np.broadcast_to(np.arange(K), (len(flat), K)).copy()  # draw's column of each one
    if permute:
        chosen = np.abs(products).argmax(axis=1)
        clash = (np.sort(chosen, axis=1) != np.arange(K)).any(axis=1)
        for i in np.flatnonzero(clash):  # two columns want the same one
            chosen[i] = linear_sum_assignment(np.abs(products[i]).T, maximize=True)[1]
    kept = np.take_along_axis(products, chosen[:, None, :], axis=1)[:, 0]
    R = np.zeros((len(flat), K, K))
    np.put_along_axis(R, chosen[:, None, :], np.where(kept < 0, -1.0, 1.0)[:, None, :], axis=1)
    return R


def packed_covariance(L: Array) -> Array:
    """Return covariances of the loadings of each feature, (Q, D), from (n, D, K) draws."""
    centred = L - L.mean(axis=0)
    full = np.einsum("ndi,ndj->dij", centred, centred, optimize=True) / len(L)
    i, j = packed.pair_indices(L.shape[2])
    return np.ascontiguousarray(full[:, i, j].T)
