"""Variational families: how unobserved quantities are drawn from a standard normal, and entropy.

Every site is drawn in its real-valued form u and mapped to its support: loadings as they are,
scales by `exp` (a normal u is a log-normal scale, the paper's table of models). Sites of density 1
are points. What is jointly Gaussian, everything else being independent:

- `"mean_field"`: nothing (the paper's).
- `"structured"`: the latents of a row; the loadings of a feature. The factorisation of
  `VariationalBayes`. Without it, target loadings turn away from shared ones until the posterior
  of the latents factorises, which can be tens of degrees.
- `"low_rank"`, `"full_rank"`: the latents of a row; all global sites, with a covariance
  `diag(s^2) + F F'`, or any.

Parameters are in units of the data, so that one learning rate suits all. The log density of q is
taken at the draw with its own parameters held fixed: the same value, and a gradient without bias
whose noise vanishes where q is the posterior (Roeder, Wu & Duvenaud 2017).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from contrastive_lvm._jax import load, module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.sites import LATENTS, SCALES, Site

LOG_2PI = float(np.log(2.0 * np.pi))
FIRST_SD, FIRST_SCALE_SD = 0.05, 0.2
HIDDEN = 128  # units of an encoder
MOST_WRITTEN_OUT = 6  # columns
ENCODER_UNIT = 0.05  # of its weights: many add up, so each moves less than a single value


class Batch(NamedTuple):
    """Rows of both sets, or of a minibatch of them."""

    rows: tuple[Any, ...]  # (B, D) each
    log_sizes: tuple[Any, ...]  # (B,) each
    places: tuple[Any, ...]  # (B,) positions in their sets; None for all rows
    repeats: tuple[Any, ...]  # what a row counts for


class Scaling(NamedTuple):
    """Constants of the data."""

    units: dict[str, Any]  # of the real-valued forms of sites, where not 1
    least: dict[str, Any]  # log noise variances
    inputs: tuple[Any, ...] = ()  # centre and spread of what encoders see


class RowLaws(NamedTuple):
    """Gaussian laws of vectors of K values."""

    loc: Any  # (N, K)
    log_sd: Any  # (N, K)
    root: Any  # (N, K(K-1)/2) strictly lower T of `diag(sd) (I + T)`, packed by rows, or None


class Family:
    """Draws and their densities as functions of parameters, for one layout of sites."""

    def __init__(
        self,
        sites: dict[str, Site],
        widths: tuple[tuple[int, ...], ...],  # of the latents of each set, as in LATENTS
        *,
        kind: str,
        rank: int,
        features: Callable[..., Any] | None = None,  # what encoders see of rows
    ) -> None:
        self.sites, self.widths, self.kind, self.features = sites, widths, kind, features
        self.points = [name for name, site in sites.items() if site.flat]
        self.laws = [name for name, site in sites.items() if not site.flat]
        self.loadings = [n for n in self.laws if n.removesuffix(" standard") in ("S", "W")]
        self.sizes = {name: int(np.prod(sites[name].shape)) for name in self.laws}
        self.size = sum(self.sizes.values())
        self.rank = min(rank, self.size) if kind == "low_rank" else 0

    @property
    def correlated(self) -> bool:
        """Whether latents of a row are."""
        return self.kind != "mean_field"

    # Where parameters begin

    def first_globals(self, values: dict[str, Array], units: dict[str, Array]) -> dict[str, Any]:
        """Parameters that give the values, with little spread."""
        params: dict[str, Any] = {"point": {}, "loc": {}, "log_sd": {}}
        for name, site in self.sites.items():
            real = np.broadcast_to(self._real(name, values), site.shape) / units.get(name, 1.0)
            params["point" if site.flat else "loc"][name] = np.array(real)
            if not site.flat:
                first = FIRST_SD if name in self.loadings else FIRST_SCALE_SD
                params["log_sd"][name] = np.full(site.shape, np.log(first))
        if self.kind == "structured" and self.loadings:
            D, K = self.sites[self.loadings[0]].shape[0], sum(self._loading_widths())
            params["root"] = np.zeros((D, K * (K - 1) // 2))
        if self.kind == "full_rank":
            params["root"] = np.zeros((self.size, self.size))
        if self.kind == "low_rank":
            # Zero would be a saddle: the two factors of a product, and no gradient.
            noise = np.random.default_rng(0).standard_normal((self.size, self.rank))
            params["factor"] = 0.1 * noise
        return params

    def _real(self, name: str, values: dict[str, Array]) -> Array:
        if name not in values:
            return np.zeros(())
        transform = self.sites[name].transform
        transform = getattr(transform, "base_transform", transform)
        if type(transform).__name__ == "ExpTransform":  # NumPy's log: nothing to compile
            return np.asarray(np.log(values[name]))
        identity = type(transform).__name__ == "IdentityTransform"
        return values[name] if identity else np.asarray(transform.inv(values[name]))

    def _loading_widths(self) -> list[int]:
        return [self.sites[name].shape[1] for name in self.loadings]

    def first_rows(self, latents: Array, spread: Array) -> dict[str, Any]:
        """Parameters of a set's latents, a row each."""
        N, K = latents.shape
        params = {"loc": latents, "log_sd": np.tile(np.log(spread), (N, 1))}
        if self.correlated:
            params["root"] = np.zeros((N, K * (K - 1) // 2))
        return params

    def first_encoder(
        self, inputs: Array, latents: Array, spread: Array, rng: np.random.Generator
    ) -> dict[str, Any]:
        """An encoder that begins as the ridge regression of the latents on the inputs."""
        F, K = inputs.shape[1], latents.shape[1]
        n_out = 2 * K + (K * (K - 1) // 2 if self.correlated else 0)
        extended = np.column_stack([inputs, np.ones(len(inputs))])
        gram = extended.T @ extended + 1e-2 * len(inputs) * np.eye(F + 1)
        linear = np.zeros((F + 1, n_out))  # in units of ENCODER_UNIT, as all weights
        linear[:, :K] = np.linalg.solve(gram, extended.T @ latents)
        linear[-1, K : 2 * K] = np.log(spread)
        first = rng.standard_normal((F + 1, HIDDEN)) * np.sqrt(2.0 / (F + 1))
        weights = {"linear": linear, "first": first, "second": np.zeros((HIDDEN, n_out))}
        return {name: value / ENCODER_UNIT for name, value in weights.items()}

    # Laws

    def row_laws(
        self, params: dict[str, Any], which: int, batch: Batch, scaling: Scaling
    ) -> RowLaws:
        """Of the latents of a batch's rows."""
        jnp = load().jnp
        if "loc" in params:
            at = batch.places[which]
            chosen = params if at is None else {k: v[at] for k, v in params.items()}
            return RowLaws(chosen["loc"], chosen["log_sd"], chosen.get("root"))
        if self.features is None:
            raise TypeError("an encoder needs the features of rows.")
        K = sum(self.widths[which])
        inputs = self.features(batch.rows[which], batch.log_sizes[which], *scaling.inputs)
        inputs = jnp.concatenate([inputs, jnp.ones((len(inputs), 1), inputs.dtype)], axis=1)
        linear, first, second = (ENCODER_UNIT * params[k] for k in ("linear", "first", "second"))
        out = inputs @ linear + jnp.maximum(inputs @ first, 0.0) @ second
        return RowLaws(out[:, :K], out[:, K : 2 * K], out[:, 2 * K :] if self.correlated else None)

    def draw(
        self, params: dict[str, Any], key: Any, batch: Batch, scaling: Scaling
    ) -> tuple[dict[str, Any], Any]:
        """Values of all sites for a batch, and the log density of their law.

        Rows count as often as they stand for others.
        """
        normals = _Normals(self._n_normals(params, batch), key, _dtype(params))
        values, total = self.draw_globals(params["globals"], normals, scaling.units)
        for which, repeat in enumerate(batch.repeats):
            if sum(self.widths[which]) > 0:
                laws = self.row_laws(params["rows"][which], which, batch, scaling)
                h, log_density = _gaussian(laws, normals.take(laws.loc.shape))
                values |= self._split(which, h)
                total += repeat * log_density.sum()
            if params["scales"]:
                scales, log_density = _scales(params["scales"][which], which, batch, normals)
                values[SCALES[which]] = scales
                total += repeat * log_density
        return values, total

    def _n_normals(self, params: dict[str, Any], batch: Batch) -> int:
        n = self.size + self.rank
        for which, rows in enumerate(batch.rows):
            width = sum(self.widths[which])
            width += params["scales"][which]["loc"].shape[1] if params["scales"] else 0
            n += len(rows) * width
        return n

    def _split(self, which: int, h: Any) -> dict[str, Any]:
        """Latents by name; blocks without columns are not sites."""
        ends = np.cumsum(self.widths[which])[:-1].tolist()
        parts = load().jnp.split(h, ends, axis=1)
        named = zip(LATENTS[which], parts, strict=True)
        return {name: part for name, part in named if part.shape[1] > 0}

    def draw_globals(
        self, params: dict[str, Any], normals: "_Normals", units: dict[str, Any]
    ) -> tuple[dict[str, Any], Any]:
        """Values of the global sites, and the log density of their law."""
        values: dict[str, Any] = {}
        for name in self.points:
            u = params["point"][name] * units.get(name, 1.0)
            values[name] = self.sites[name].transform(u)
        if not self.laws:
            return values, 0.0
        jnp, (real, total) = load().jnp, self._real_draw(params, normals)
        for name in self.laws:
            unit, site = units.get(name), self.sites[name]
            u = real[name] if unit is None else real[name] * unit
            values[name] = site.transform(u)
            total -= site.transform.log_abs_det_jacobian(u, values[name]).sum()
            if unit is not None:
                total -= jnp.broadcast_to(jnp.log(unit), site.shape).sum()
        return values, total

    def _real_draw(self, params: dict[str, Any], normals: "_Normals") -> tuple[dict[str, Any], Any]:
        """Real-valued forms, in units, and the log density of their law."""
        if self.kind in ("full_rank", "low_rank"):
            return self._joint_draw(params, normals)
        real, total = {}, 0.0
        together = self.loadings if self.kind == "structured" else []
        for name in self.laws:
            if name not in together:
                loc, log_sd = (params[k][name].reshape(1, -1) for k in ("loc", "log_sd"))
                u, log_density = _gaussian(RowLaws(loc, log_sd, None), normals.take(loc.shape))
                real[name] = u.reshape(self.sites[name].shape)
                total += log_density.sum()
        if together:
            jnp = load().jnp
            loc, log_sd = (
                jnp.concatenate([params[k][n] for n in together], axis=1) for k in ("loc", "log_sd")
            )
            u, log_density = _gaussian(
                RowLaws(loc, log_sd, params["root"]), normals.take(loc.shape)
            )
            ends = np.cumsum(self._loading_widths())[:-1].tolist()
            real |= dict(zip(together, jnp.split(u, ends, axis=1), strict=True))
            total += log_density.sum()
        return real, total

    def _joint_draw(
        self, params: dict[str, Any], normals: "_Normals"
    ) -> tuple[dict[str, Any], Any]:
        """All laws as one vector."""
        jnp, jax, linalg = load().jnp, module("jax"), module("jax.scipy.linalg")
        loc, log_sd = (
            jnp.concatenate([params[k][n].ravel() for n in self.laws]) for k in ("loc", "log_sd")
        )
        sd, noise = jnp.exp(log_sd), normals.take((self.size,))
        # Many terms add up: each in units of one over the root of their number.
        T = F = None
        if self.kind == "full_rank":
            T = jnp.tril(params["root"], -1) / np.sqrt(self.size)
            white = noise + T @ noise
        else:
            F = params["factor"] / np.sqrt(self.rank)
            white = noise + F @ normals.take((self.rank,))
        u = loc + sd * white
        held = jax.lax.stop_gradient((loc, sd, T, F))
        white = (u - held[0]) / held[1]
        logdet = 2.0 * jnp.log(held[1]).sum()
        if self.kind == "full_rank":
            root = held[2] + jnp.eye(self.size, dtype=loc.dtype)
            square = (linalg.solve_triangular(root, white, lower=True) ** 2).sum()
        else:
            F = held[3]
            inner = jnp.eye(self.rank, dtype=loc.dtype) + F.T @ F
            half = linalg.solve_triangular(jnp.linalg.cholesky(inner), F.T @ white, lower=True)
            square = (white**2).sum() - (half**2).sum()
            logdet += jnp.linalg.slogdet(inner)[1]
        ends = np.cumsum([self.sizes[n] for n in self.laws])[:-1].tolist()
        parts = zip(self.laws, jnp.split(u, ends), strict=True)
        real = {name: part.reshape(self.sites[name].shape) for name, part in parts}
        return real, -0.5 * (square + logdet + self.size * LOG_2PI)


class _Normals:
    """Standard normals, drawn at once and handed out piece by piece: one generator to compile."""

    def __init__(self, n: int, key: Any, dtype: Any) -> None:
        self.values = module("jax.random").normal(key, (n,), dtype)
        self.used = 0

    def take(self, shape: tuple[int, ...]) -> Any:
        """The next ones."""
        n = int(np.prod(shape))
        self.used += n
        return self.values[self.used - n : self.used].reshape(shape)


def typed_key(data: Any) -> Any:
    """A random key from four whole numbers, of the generator that compiles and runs fastest."""
    return module("jax.random").wrap_key_data(data, impl="unsafe_rbg")


def globals_only(
    family: Family, params: dict[str, Any], key: Any, units: dict[str, Any]
) -> dict[str, Any]:
    """Values of the global sites."""
    normals = _Normals(family.size + family.rank, key, _dtype(params))
    return family.draw_globals(params["globals"], normals, units)[0]


def _dtype(params: dict[str, Any]) -> Any:
    return next(iter(params["globals"]["point"].values())).dtype


def _gaussian(laws: RowLaws, noise: Any) -> tuple[Any, Any]:
    """A draw from each law, (N, K), and its log density, entry by entry.

    With `u = loc + diag(sd) (I + T) noise`, the value is that of the noise, and the gradient in u
    alone is `-diag(1/sd) (I + T)^-T noise`.
    """
    jnp, stop = load().jnp, module("jax").lax.stop_gradient
    log_sd = stop(laws.log_sd)
    if laws.root is None:
        mixed, pull = noise, noise
    else:
        T = _unpacked(laws.root, noise.shape[1])
        mixed = noise + jnp.einsum("nij,nj->ni", T, noise)
        pull = _transposed_solve(stop(T), noise)
    u = laws.loc + jnp.exp(laws.log_sd) * mixed
    value = -0.5 * (noise**2 + LOG_2PI) - log_sd
    return u, value - (u - stop(u)) * pull * jnp.exp(-log_sd)


def _scales(params: dict[str, Any], which: int, batch: Batch, normals: _Normals) -> tuple[Any, Any]:
    """Log-normal scales of the entries or rows of a batch; those not observed are 1."""
    jnp, at = load().jnp, batch.places[which]
    loc, log_sd = (params[k] if at is None else params[k][at] for k in ("loc", "log_sd"))
    u, log_density = _gaussian(RowLaws(loc, log_sd, None), normals.take(loc.shape))
    seen = ~jnp.isnan(batch.rows[which])
    seen = seen if loc.shape[1] > 1 else seen.any(axis=1, keepdims=True)
    return jnp.exp(jnp.where(seen, u, 0.0)), jnp.where(seen, log_density - u, 0.0).sum()


def _unpacked(root: Any, K: int) -> Any:
    """Strictly lower triangular matrices, (N, K, K), from their rows in (N, K(K-1)/2)."""
    jnp = load().jnp
    place = np.full((K, K), root.shape[1])
    place[np.tril_indices(K, -1)] = np.arange(root.shape[1])
    zero = jnp.zeros((root.shape[0], 1), root.dtype)
    return jnp.concatenate([root, zero], axis=1)[:, place]


def _transposed_solve(T: Any, noise: Any) -> Any:
    """`(I + T)^-T noise` of (N, K, K) strictly lower triangular T.

    Written out for few columns, which compiles to less than a call of LAPACK for every row.
    """
    K = noise.shape[1]
    if K > MOST_WRITTEN_OUT:
        solve = module("jax.scipy.linalg").solve_triangular
        return solve(T, noise[:, :, None], trans=1, lower=True, unit_diagonal=True)[:, :, 0]
    columns: dict[int, Any] = {}
    for k in reversed(range(K)):
        value = noise[:, k]
        for j in range(k + 1, K):
            value = value - T[:, j, k] * columns[j]
        columns[k] = value
    return load().jnp.stack([columns[k] for k in range(K)], axis=1)
