"""Whether posteriors mean what they say: `python -m benchmarks.calibrate [--write] [SEED]`.

Over 200 simulated datasets:

*Coverage with known parameters.* The closed-form posterior of target latents, given the true
loadings, means and noise: its 90 % intervals must hold 90 % of the true latents.

*Coverage with unknown parameters.* `NUTS` with loadings, means and noise unknown. Loadings are
drawn from the prior of the fit, `ARD(2, 1)`. The sign of W's column is free, so the quantity is `t`
times the sign of W's first loading, which has none of that freedom.

*Simulation-based calibration* (Talts et al. 2018). When parameters are drawn from the prior, the
rank of the true value of any quantity among independent draws of the posterior is uniform. Noise is
given, since its own prior, flat in the logarithm, cannot be drawn from. Nor can the flat prior of
the means; but the model is invariant to translations, so that ranks have the same distribution
whatever the true means are, which is the uniform one. Two models: ARD with a column each, and the
group lasso with two columns each, which is invariant to rotations and sampled without them. Ranks
are tested by chi-square (20 bins) and Kolmogorov-Smirnov; p-values are judged after Bonferroni's
correction over all of them.

With `--write` the table goes to `docs/calibration.md`. Datasets have the seeds from SEED on, 0
unless given: what looks odd in some datasets can be tested on others.
"""

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import contrastive_lvm as clvm
from contrastive_lvm import prediction as predict
from contrastive_lvm.arrays import Array
from contrastive_lvm.black_box.nuts.nuts import NUTS
from contrastive_lvm.linalg.loadings import Loadings

DATASETS = 200
N, M, D = 40, 40, 6
NOISE = 0.25
MASS = 0.9  # of intervals
CLOSE = (0.88, 0.92)  # that their coverage must lie between
BINS, THIN = 20, 10
LEVEL = 0.05  # of the smallest p-value, times the number of p-values
PAGE = Path(__file__).parent.parent / "docs" / "calibration.md"

SHARED, TARGET = "shared loadings", "target loadings"
T, Z = "target latents of target", "shared latents of target"
Values = dict[str, Array]


class Case(NamedTuple):
    """A model whose prior can be drawn from."""

    name: str
    model: clvm.Model
    width: int  # of both blocks
    draw: Callable[[np.random.Generator, int], tuple[Array, Values]]  # loadings and their scales


class Rank(NamedTuple):
    """Uniformity of one quantity's ranks."""

    case: str
    quantity: str
    chi2: float
    ks: float


def ard(rng: np.random.Generator, width: int) -> tuple[Array, Values]:
    """Loadings from `ARD(2, 1)`."""
    variance = 1.0 / rng.gamma(2.0, 1.0, width)
    return rng.standard_normal((D, width)) * np.sqrt(variance), {"variance": variance}


def group_lasso(rng: np.random.Generator, width: int) -> tuple[Array, Values]:
    """Rows from the density `exp(-2 ||l||)`: a gamma length, a uniform direction."""
    direction = rng.standard_normal((D, width))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return direction * rng.gamma(width, 0.5, (D, 1)), {}


def _model(width: int, prior: clvm.Prior[Any]) -> clvm.Model:
    return clvm.contrastive_model(width, width, shared_prior=prior, target_prior=prior)


CASES = (
    Case("ARD, 1 + 1", _model(1, clvm.ARD(2, 1)), 1, ard),
    Case("group lasso, 2 + 2", _model(2, clvm.GroupLasso(2.0)), 2, group_lasso),
)


def simulated(case: Case, first: int) -> Iterator[tuple[int, Values, Array, Array]]:
    """Seeds, true values, target and background rows; means are zero."""
    for seed in range(first, first + DATASETS):
        rng = np.random.default_rng(seed)
        S, own_S = case.draw(rng, case.width)
        W, own_W = case.draw(rng, case.width)
        t, z = rng.standard_normal((N, case.width)), rng.standard_normal((N, case.width))
        truth = {SHARED: S, TARGET: W, T: t, Z: z, "target mean": np.zeros(D)}
        truth |= {f"{SHARED} {name}": value for name, value in own_S.items()}
        truth |= {f"{TARGET} {name}": value for name, value in own_W.items()}
        noise = np.sqrt(NOISE) * rng.standard_normal((N + M, D))
        background = rng.standard_normal((M, case.width)) @ S.T + noise[N:]
        yield seed, truth, z @ S.T + t @ W.T + noise[:N], background


def known_parameters(first: int) -> float:
    """Coverage of intervals of target latents from the exact row posterior."""
    held = []
    for _, truth, X, _ in simulated(CASES[0], first):
        L = np.hstack([truth[SHARED], truth[TARGET]])
        view = predict.Linear(Loadings(L), truth["target mean"], np.full(D, NOISE))
        mean, cov = predict.latent_moments(view, X)
        half = stats.norm.ppf(0.5 + 0.5 * MASS) * np.sqrt(cov[:, 1, 1])
        held.append(np.abs(truth[T][:, 0] - mean[:, 1]) < half)
    return float(np.mean(held))


def unknown_parameters(first: int) -> float:
    """The same from draws, loadings, means and noise unknown."""
    held = []
    for seed, truth, X, B in simulated(CASES[0], first):
        values = _draws(NUTS(300, 500, 2), CASES[0].model, X, B, seed)
        signed = _signed(values).reshape(-1, N)
        low, high = np.quantile(signed, [0.5 - 0.5 * MASS, 0.5 + 0.5 * MASS], axis=0)
        held.append((low < _signed(truth)) & (_signed(truth) < high))
    return float(np.mean(held))


def ranks(case: Case, first: int) -> list[Rank]:
    """Simulation-based calibration of one model."""
    engine = NUTS(300, 500, 2, given={"log noise": np.log(NOISE)})
    found: dict[str, list[int]] = {}
    for seed, truth, X, B in simulated(case, first):
        true = quantities(truth)
        for name, drawn in quantities(_draws(engine, case.model, X, B, seed)).items():
            thinned = drawn.reshape(-1)[THIN - 1 :: THIN][:-1]
            found.setdefault(name, []).append(int((thinned < true[name]).sum()))
    rng = np.random.default_rng(0)
    return [
        Rank(case.name, n, *uniformity(np.array(r), 1000 // THIN, rng)) for n, r in found.items()
    ]


def quantities(v: Values) -> Values:
    """Functions of true values, or of draws, that no change of signs or rotation alters."""
    W, S = v[TARGET], v[SHARED]
    WW, SS = W @ W.swapaxes(-1, -2), S @ S.swapaxes(-1, -2)
    found = {
        "(t W')[0, 0]": (v[T] @ W.swapaxes(-1, -2))[..., 0, 0],
        "(z S')[0, 0]": (v[Z] @ S.swapaxes(-1, -2))[..., 0, 0],
        "t t' of a row": (v[T][..., 0, :] ** 2).sum(axis=-1),
        "log tr(W W')": np.log((W**2).sum(axis=(-1, -2))),
        "log tr(S S')": np.log((S**2).sum(axis=(-1, -2))),
        "(W W')[0, 1]": WW[..., 0, 1],
        "(S S')[0, 1]": SS[..., 0, 1],
        "mean[0]": v["target mean"][..., 0],
    }
    if W.shape[-1] == 1:
        found["t of a row, signed"] = _signed(v)[..., 0]
    for letter, name in (("S", SHARED), ("W", TARGET)):
        if f"{name} variance" in v:
            found[f"log {letter} variance"] = np.log(v[f"{name} variance"]).sum(axis=-1)
    return found


def uniformity(ranks: np.ndarray, n_values: int, rng: np.random.Generator) -> tuple[float, float]:
    """p-values of ranks 0 ... n_values - 1: chi-square in bins, and Kolmogorov-Smirnov."""
    counts = np.bincount(ranks * BINS // n_values, minlength=BINS)
    spread = (ranks + rng.random(len(ranks))) / n_values  # ties broken at random
    return float(stats.chisquare(counts).pvalue), float(stats.kstest(spread, "uniform").pvalue)


def _draws(engine: NUTS, model: clvm.Model, X: Array, B: Array, seed: int) -> Values:
    posterior = engine._run(model, [X, B], seed=seed)
    sizes = {name: L.shape[1] for name, L in posterior.loadings.items()}
    if posterior.draws is None or sizes != {b.name: b.n_components for b in model.blocks}:
        raise RuntimeError(f"the fit to dataset {seed} dropped a column; raise the signal.")
    return posterior.draws.values


def _signed(v: Values) -> Array:
    """Target latents times the sign of W's first loading, (..., N)."""
    return np.asarray(v[T][..., 0] * np.sign(v[TARGET][..., 0, :]))


def page(coverage: dict[str, float], found: list[Rank]) -> str:
    """The tables and what they mean, as Markdown."""
    tests = 2 * len(found)
    least = min(min(r.chi2, r.ks) for r in found)
    begin = (
        f"Results of `python -m benchmarks.calibrate` on {DATASETS} simulated datasets of "
        f"{N} + {M} rows and {D} features."
    )
    ranking = (
        "If the truth is drawn from the prior, its rank among draws of the posterior should be "
        "uniform (simulation-based calibration, Talts et al. 2018). Here the noise variance is "
        "known. Loadings, their scales, latents and means are unknown. The table has p-values of a "
        f"chi-square test in {BINS} bins and of a Kolmogorov-Smirnov test of uniform ranks."
    )
    end = (
        f"The smallest of the {tests} p-values is {least:.3f}. With Bonferroni's correction, one "
        f"below {LEVEL / tests:.4f} would be evidence against the draws."
    )
    lines = [
        "# Calibration",
        "",
        begin,
        "",
        "A 90 % interval should contain the truth in 90 % of the datasets.",
        "",
        "| intervals of target latents | coverage |",
        "|---|---|",
        *(f"| {name} | {100 * value:.1f} % |" for name, value in coverage.items()),
        "",
        ranking,
        "",
        "| model | quantity | chi-square | Kolmogorov-Smirnov |",
        "|---|---|---|---|",
        *(f"| {r.case} | `{r.quantity}` | {r.chi2:.2g} | {r.ks:.2g} |" for r in found),
        "",
        end,
        "",
    ]
    return "\n".join(lines)


def _timed(name: str, task: Callable[..., Any], *arguments: Any) -> Any:
    begin = time.perf_counter()
    result = task(*arguments)
    print(f"{name}: {time.perf_counter() - begin:.0f} s", file=sys.stderr, flush=True)
    return result


def main(*arguments: str) -> int:
    """Print the tables; the exit code says whether everything is calibrated."""
    first = next((int(a) for a in arguments if a != "--write"), 0)
    coverage = {
        "known parameters, closed form": _timed("known parameters", known_parameters, first),
        "unknown parameters, `NUTS`": _timed("unknown parameters", unknown_parameters, first),
    }
    found = [r for case in CASES for r in _timed(case.name, partial(ranks, case), first)]
    text = page(coverage, found)
    print(text)
    if "--write" in arguments:
        PAGE.write_text(text, encoding="utf-8")
    uniform = 2 * len(found) * min(min(r.chi2, r.ks) for r in found) > LEVEL
    return 0 if uniform and all(CLOSE[0] <= c <= CLOSE[1] for c in coverage.values()) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
