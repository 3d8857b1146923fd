"""A training step of the contrastive autoencoder against bare ones in JAX and in PyTorch.

All three take Adam steps on the same objective: 256 + 256 rows of 784 features, networks of 128 and
256 hidden units, 2 target and 8 shared dimensions, learned isotropic noise. The bare ones know the
model: no missing entries, no clipping, no schedule, no named parts. JAX's run in one compiled loop;
PyTorch's eagerly, as is usual there.
"""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import contrastive_lvm as clvm
from benchmarks.measure import Result, best_seconds
from contrastive_lvm._jax import module
from contrastive_lvm.black_box.devices import placement
from contrastive_lvm.rows.reader import LocalRows
from contrastive_lvm.rows.scatter import first_pass
from contrastive_lvm.vae.architecture import Architecture
from contrastive_lvm.vae.networks import FullyConnected
from contrastive_lvm.vae.training import Training, TrainingPlan
from contrastive_lvm.vae.training_data import NetworkRows, prepare_training

D, B, HIDDEN, T, Z = 784, 256, (128, 256), 2, 8
STEPS, RATE, EPOCHS = 40, 1e-3, 20
AGAINST_JAX, AGAINST_TORCH, OF_PENALTY = 1.3, 1.0, 1.15


def step() -> list[Result]:
    """Time of a step over those of the bare ones, and of twenty epochs."""
    rng = np.random.default_rng(0)
    X, Y = (rng.standard_normal((B * STEPS, D)).astype(np.float32) for _ in range(2))
    runs = {"ours": _ours(X, Y), "jax": _jax(X, Y), "torch": _torch(X, Y)}
    runs["separated"] = _ours(X, Y, clvm.ContrastiveVAE().separation)
    compiled = {}
    for name, run in runs.items():
        begin = time.perf_counter()
        run()
        compiled[name] = time.perf_counter() - begin
    seconds = best_seconds(runs, 7)
    each = {name: 1e3 * value / STEPS for name, value in seconds.items()}
    what = f"autoencoder, {B} + {B} x {D}: step / one"
    detail = f"{each['ours']:.1f} and {{:.1f}} ms; first {STEPS} steps {compiled['ours']:.1f} s"
    return [
        Result(
            f"{what} by hand in JAX",
            each["ours"] / each["jax"],
            AGAINST_JAX,
            detail.format(each["jax"]),
        ),
        Result(
            f"{what} in PyTorch",
            each["ours"] / each["torch"],
            AGAINST_TORCH,
            f"{detail.format(each['torch'])}; {_twenty_epochs(rng)}",
        ),
        Result(
            f"autoencoder, {B} + {B} x {D}: step with the penalty of shared latents / without",
            each["separated"] / each["ours"],
            OF_PENALTY,
            f"{each['separated']:.1f} and {each['ours']:.1f} ms",
        ),
    ]


def _twenty_epochs(rng: np.random.Generator) -> str:
    X, Y = (rng.standard_normal((30_000, D)).astype(np.float32) for _ in range(2))
    begin = time.perf_counter()
    model = clvm.ContrastiveVAE(T, Z, max_epochs=EPOCHS, kl_warm_up=0.0, random_state=0)
    model.fit(X, background=Y[:-1])
    return f"{EPOCHS} epochs of 30,000 + 30,000 rows {time.perf_counter() - begin:.0f} s"


def _ours(X: Any, Y: Any, separation: float = 0.0) -> Callable[[], Any]:
    architecture = Architecture(
        D, T, Z, *2 * (FullyConnected(HIDDEN, "relu"),), clvm.Gaussian(), encodes_missing=False
    )
    plan = TrainingPlan(1000, 2 * B, RATE, 0.0, 1.0, None, separation)
    sets = tuple(NetworkRows(LocalRows(rows)) for rows in (X, Y))
    moments = tuple(first_pass(rows.reader, scatter=False) for rows in sets)
    data = prepare_training(architecture, sets, moments, 0.0, np.random.default_rng(0))
    training = Training(architecture, plan, data, placement(1), 0)
    inputs = next(training.step_inputs(0))
    state = training.state

    def run() -> Any:
        found = training.functions.steps(
            state.weights, state.optimizer, inputs, training.objective()
        )
        return module("jax").block_until_ready(found)

    assert len(inputs.numbers) == STEPS, inputs.numbers.shape
    return run


def _sizes() -> dict[str, tuple[int, ...]]:
    return {
        "target encoder": (D, *HIDDEN, 2 * (T + Z)),
        "background encoder": (D, *HIDDEN, 2 * Z),
        "target decoder": (T, *HIDDEN, D),
        "shared decoder": (Z, *HIDDEN, D),
    }


def _jax(X: Any, Y: Any) -> Callable[[], Any]:
    jax, optax = module("jax"), module("optax")
    jnp, random = jax.numpy, jax.random
    rng = np.random.default_rng(0)
    p: dict[str, Any] = {"log noise": np.float32(0.0)}
    for name, sizes in _sizes().items():
        p[name] = [
            ((rng.standard_normal((i, o)) / np.sqrt(i)).astype(np.float32), np.zeros(o, np.float32))
            for i, o in pairwise(sizes)
        ]

    def net(layers: Any, h: Any) -> Any:
        for w, b in layers[:-1]:
            h = jax.nn.relu(h @ w + b)
        return h @ layers[-1][0] + layers[-1][1]

    def draw(p: Any, of: str, rows: Any, key: Any) -> Any:
        m, s = jnp.split(net(p[f"{of} encoder"], rows), 2, axis=1)
        kl = 0.5 * (m**2 + jnp.exp(2 * s) - 1 - 2 * s).sum()
        return m + jnp.exp(s) * random.normal(key, m.shape), kl

    def loss(p: Any, x: Any, y: Any, key: Any) -> Any:
        k1, k2 = random.split(key)
        h, kl = draw(p, "target", x, k1)
        z, kl2 = draw(p, "background", y, k2)
        shared = net(p["shared decoder"], jnp.concatenate([h[:, T:], z]))
        r = x - net(p["target decoder"], h[:, :T]) - shared[:B]
        square = (r**2).sum() + ((y - shared[B:]) ** 2).sum()
        noise = p["log noise"]
        return 0.5 * (square * jnp.exp(-noise) + 2 * B * D * noise) + kl + kl2

    optimiser = optax.adam(RATE)

    def one(carry: Any, at: Any) -> Any:
        p, state = carry
        change, state = optimiser.update(jax.grad(loss)(p, *at), state)
        return (optax.apply_updates(p, change), state), None

    many = jax.jit(lambda p, s, *at: jax.lax.scan(one, (p, s), at)[0])
    first, keys = optimiser.init(p), random.split(random.key(0), STEPS)
    x, y = (jax.device_put(rows.reshape(STEPS, B, D)) for rows in (X, Y))
    return lambda: jax.block_until_ready(many(p, first, x, y, keys))


def _torch(X: Any, Y: Any) -> Callable[[], Any]:
    import torch
    from torch import nn

    torch.manual_seed(0)

    def network(sizes: tuple[int, ...]) -> Any:
        layers: list[Any] = []
        for i, o in pairwise(sizes):
            layers += [nn.Linear(i, o), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    nets = {name: network(sizes) for name, sizes in _sizes().items()}
    noise = nn.Parameter(torch.zeros(()))
    weights = [noise, *(w for net in nets.values() for w in net.parameters())]
    optimiser = torch.optim.Adam(weights, lr=RATE)
    x, y = (torch.from_numpy(rows.reshape(STEPS, B, D)) for rows in (X, Y))

    def draw(of: str, rows: Any) -> Any:
        m, s = nets[f"{of} encoder"](rows).chunk(2, dim=1)
        kl = 0.5 * (m**2 + torch.exp(2 * s) - 1 - 2 * s).sum()
        return m + torch.exp(s) * torch.randn_like(m), kl

    def run() -> None:
        for i in range(STEPS):
            optimiser.zero_grad(set_to_none=True)
            h, kl = draw("target", x[i])
            z, kl2 = draw("background", y[i])
            shared = nets["shared decoder"](torch.cat([h[:, T:], z]))
            r = x[i] - nets["target decoder"](h[:, :T]) - shared[:B]
            square = (r**2).sum() + ((y[i] - shared[B:]) ** 2).sum()
            total = 0.5 * (square * torch.exp(-noise) + 2 * B * D * noise) + kl + kl2
            total.backward()
            optimiser.step()

    return run
