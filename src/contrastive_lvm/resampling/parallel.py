"""Resamples side by side, each with a seed of its own.

The random numbers of resample i come from the i-th child of one `SeedSequence`, so that results
depend neither on the number of workers nor on the order in which they finish. A batch of resamples
is one call, which spares small problems most of their overhead. Batches run one after the other
unless `n_jobs` or `joblib.parallel_config` asks for workers: most take some milliseconds, and a
process needs a second to start.
"""

import logging
from collections.abc import Callable, Sequence, Sized
from contextlib import closing
from functools import partial
from typing import TypeVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import check_random_state

from contrastive_lvm.checks import Seed
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.progress import progress

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
Batch = TypeVar("Batch", bound=Sized)


def seed_sequence(random_state: Seed) -> np.random.SeedSequence:
    """Return the root of all seeds for an int, a generator of NumPy's, or None.

    Examples
    --------
    >>> seed_sequence(3).entropy
    3
    """
    if random_state is None:
        return np.random.SeedSequence()
    if isinstance(random_state, int | np.integer):
        if random_state < 0:
            raise InvalidParameterError("random_state", random_state, "must not be negative.")
        return np.random.SeedSequence(int(random_state))
    if isinstance(random_state, np.random.Generator):
        return np.random.SeedSequence(random_state.integers(2**32, size=4).tolist())
    try:
        rng = check_random_state(random_state)
    except ValueError as error:
        reason = "cannot seed random numbers; use an int, a generator of NumPy's, or None."
        raise InvalidParameterError("random_state", random_state, reason) from error
    return np.random.SeedSequence(rng.randint(2**31 - 1, size=4).tolist())


def run_batches(
    function: Callable[[Batch], Result],
    batches: Sequence[Batch],
    *,
    name: str,
    unit: str = "resample",
    n_jobs: int | None = None,
) -> list[Result]:
    """Apply a function to batches, with progress; an interruption ends the workers.

    Parameters
    ----------
    function : callable
        A function of one batch. Workers receive it with everything that it refers to, so that it
        must be possible to pickle it when there are several.
    batches : sequence
        Arguments of the function, as long as the number of resamples in them.
    name, unit : str
        Text shown with the progress.
    n_jobs : int or None
        Number of workers as in joblib; None is 1 unless `joblib.parallel_config` says otherwise.

    Returns
    -------
    list
        The results of the batches, in their order.
    """
    calls = Parallel(n_jobs=n_jobs, return_as="generator")(delayed(function)(b) for b in batches)
    results, n = [], sum(map(len, batches))
    with closing(calls), progress(name, n, logger, unit=unit) as advance:
        for batch, found in zip(batches, calls, strict=True):
            results.append(found)
            advance(len(batch), f"of {n}")
    return results


def resample(
    function: Callable[[list[np.random.Generator]], list[Result]],
    n_resamples: int,
    seeds: np.random.SeedSequence,
    *,
    batch: int = 1,
    name: str = "resampling",
    n_jobs: int | None = None,
) -> list[Result]:
    """Apply a function to lists of `batch` out of `n_resamples` independent random generators.

    The results, one for each generator, are in their order. Further arguments are those of
    `run_batches`.

    Examples
    --------
    >>> resample(lambda rngs: [int(rng.integers(100)) for rng in rngs], 3, seed_sequence(0))
    [80, 66, 65]
    """
    children = seeds.spawn(n_resamples)
    batches = [children[i : i + batch] for i in range(0, n_resamples, batch)]
    found = run_batches(partial(_call, function), batches, name=name, n_jobs=n_jobs)
    return [result for own in found for result in own]


def _call(
    function: Callable[[list[np.random.Generator]], list[Result]],
    seeds: list[np.random.SeedSequence],
) -> list[Result]:
    return function([np.random.default_rng(seed) for seed in seeds])
