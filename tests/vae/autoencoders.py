"""What the tests of autoencoders share: small data, a quick model, and one that is fitted once."""

from functools import cache
from typing import Any

import numpy as np

import contrastive_lvm as clvm

DATA = clvm.datasets.make_contrastive(300, 200, n_features=8, n_shared=2, random_state=0)
QUICK: dict[str, Any] = {
    "hidden_layer_sizes": (8,),
    "max_epochs": 6,
    "batch_size": 64,
    "random_state": 0,
    "refine_steps": 0,  # compiles as long as training; tests/vae/test_refinement.py is about it
}


def quick(n_target: int = 2, n_shared: int = 2, **words: Any) -> clvm.ContrastiveVAE:
    return clvm.ContrastiveVAE(n_target, n_shared, **{**QUICK, **words})


def fitted(**words: Any) -> clvm.ContrastiveVAE:
    return quick(**words).fit(DATA.target, background=DATA.background)


@cache
def known() -> clvm.ContrastiveVAE:
    """Fitted once, since compilation takes seconds."""
    return fitted()


def counts(n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.poisson(np.exp(rng.standard_normal((n, 1)) * rng.standard_normal(8) * 0.5)).astype(
        float
    )


def same(a: Any, b: Any, X: np.ndarray = DATA.target) -> None:
    """The same latents and the same history."""
    np.testing.assert_array_equal(a.transform(X), b.transform(X))
    for name, values in a.history_.items():
        np.testing.assert_array_equal(values, b.history_[name], err_msg=name)
