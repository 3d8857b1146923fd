"""A gradient step of SVI against one written by hand for a single model.

Both raise the same bound: Poisson counts `x_id ~ Poisson(exp(l_d' h_i + mean_d))` of two sets,
`h_i ~ N(0, I)`, points for loadings and means, `q(h_i) = N(m_i, R_i R_i')` for every row, one draw
a step, Adam. The one written by hand knows the model: it has no sites, no names and no options, and
its entropy is in closed form. Each side makes its steps in one compiled loop, and compilation is
not on the clock but reported.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import contrastive_lvm as clvm
from benchmarks.measure import Result, best_seconds
from contrastive_lvm._jax import double_precision, module
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.start import starting_point
from contrastive_lvm.black_box.svi.guide import SviLayout
from contrastive_lvm.black_box.svi.svi_loop import SviLoop
from contrastive_lvm.black_box.svi.svi_rows import SviRows

STEPS, RATE, LIMIT = 100, 0.01, 1.5
N, M, D, K, T = 1000, 500, 100, 4, 2


def counts() -> tuple[Array, Array]:
    """Two sets of counts."""
    rng = np.random.default_rng(0)
    S, W = 0.4 * rng.standard_normal((D, K)), 0.5 * rng.standard_normal((D, T))
    eta = rng.standard_normal((N, K)) @ S.T + rng.standard_normal((N, T)) @ W.T
    X = rng.poisson(np.exp(eta)).astype(np.float64)
    return X, rng.poisson(np.exp(rng.standard_normal((M, K)) @ S.T)).astype(np.float64)


def step() -> list[Result]:
    """Time of a step over that of the one written by hand."""
    X, B = counts()
    with double_precision():
        ours, first = _ours(X, B)
        by_hand = _by_hand(X, B)
        compiled = {}
        for name, run in (("ours", ours), ("by hand", by_hand)):
            start = time.perf_counter()
            run()
            compiled[name] = time.perf_counter() - start
        seconds = best_seconds({"ours": ours, "by hand": by_hand}, 10)
    mine, its = (1e3 * seconds[name] / STEPS for name in ("ours", "by hand"))
    return [
        Result(
            f"Poisson, {N} + {M} x {D}, {K + T} columns: SVI step / one by hand",
            mine / its,
            LIMIT,
            f"{mine:.2f} and {its:.2f} ms; compilation {compiled['ours']:.1f} and "
            f"{compiled['by hand']:.1f} s; bound begins at {first:.0f}",
        )
    ]


def _ours(X: Array, B: Array) -> tuple[Callable[[], Any], float]:
    model = clvm.contrastive_model(T, K, clvm.Poisson("none"))
    sizes = [np.zeros(N), np.zeros(M)]
    begin = starting_point(model, [X, B], sizes)
    rng, rates = np.random.default_rng(0), np.full(STEPS, RATE)
    rows = SviRows([X, B], sizes, None, rng)
    layout = SviLayout(begin.model, D, "structured", 1, augmented=True, n_particles=1)
    loop = SviLoop(layout, rows, begin, rng, max_iter=STEPS, tol=1e-4, learning_rate=RATE)

    def run() -> Any:
        keys = loop.rng.integers(0, 2**32, size=(STEPS, 1, 4), dtype=np.uint32)
        found = loop.compiled.steps(
            loop.parameters, loop.optimiser, keys, rates, rows.next(STEPS), loop.scaling
        )
        return module("jax").block_until_ready(found)

    return run, float(loop.best_looks.mean())


def _by_hand(X: Array, B: Array) -> Callable[[], Any]:
    jax = module("jax")
    jnp, random = jax.numpy, jax.random
    gammaln = float(sum(module("scipy.special").gammaln(Y + 1.0).sum() for Y in (X, B)))
    sets = ((jnp.asarray(X), K + T), (jnp.asarray(B), K))
    rng = np.random.default_rng(0)
    parameters: dict[str, Any] = {"L": 0.3 * rng.standard_normal((D, K + T)), "rows": []}
    for Y, k in sets:
        row = {"m": np.zeros((len(Y), k)), "s": np.full((len(Y), k), -1.0)}
        row["R"] = np.zeros((len(Y), k * (k - 1) // 2))
        parameters["rows"].append({**row, "mean": np.zeros(D)})

    def loss(p: Any, key: Any) -> Any:
        total = gammaln
        for (Y, k), row, own in zip(sets, p["rows"], random.split(key), strict=True):
            noise = random.normal(own, row["m"].shape)
            mixed = [noise[:, 0]]
            for i in range(1, k):
                R = row["R"][:, i * (i - 1) // 2 : i * (i + 1) // 2]
                mixed.append(noise[:, i] + (R * noise[:, :i]).sum(axis=1))
            h = row["m"] + jnp.exp(row["s"]) * jnp.stack(mixed, axis=1)
            eta = h @ p["L"][:, :k].T + row["mean"]
            total -= (Y * eta - jnp.exp(eta)).sum() - 0.5 * (h**2).sum() + row["s"].sum()
        return total

    def step(carry: Any, key: Any) -> Any:
        p, first, second, n = carry
        g = jax.grad(loss)(p, random.wrap_key_data(key, impl="unsafe_rbg"))
        n = n + 1.0
        first = jax.tree.map(lambda a, b: 0.9 * a + 0.1 * b, first, g)
        second = jax.tree.map(lambda a, b: 0.999 * a + 0.001 * b * b, second, g)
        rate = RATE * jnp.sqrt(1.0 - 0.999**n) / (1.0 - 0.9**n)
        p = jax.tree.map(lambda a, f, s: a - rate * f / (jnp.sqrt(s) + 1e-8), p, first, second)
        return (p, first, second, n), None

    zero = jax.tree.map(np.zeros_like, parameters)
    many = jax.jit(lambda carry, keys: jax.lax.scan(step, carry, keys)[0])

    def run() -> Any:
        keys = rng.integers(0, 2**32, size=(STEPS, 4), dtype=np.uint32)
        return jax.block_until_ready(many((parameters, zero, zero, 0.0), keys))

    return run
