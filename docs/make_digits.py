"""Write docs/digits.md and its numbers: `make digits`, about two hours.

Every model is trained once and its line is kept in docs/digits.json, so that a run that was ended
continues; `--page` only writes the page, and names of textures train on these alone. MNIST has to
be in $CONTRASTIVE_LVM_DATA, and the photographs of grass for that texture.
"""

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from contrastive_lvm.datasets import DigitsOnGrass, fetch_mnist_on_grass
from contrastive_lvm.datasets.digits_on_texture import texture
from contrastive_lvm.datasets.mnist_on_grass import SIDE, _digits
from contrastive_lvm.experiments.digits import contrastive, standard_plane

HERE = Path(__file__).parent
Rows = npt.NDArray[np.float32]
SIZES = (12_000, 12_000, 5_000)
INTENSITIES, SEEDS = (0.5, 1.0, 0.25, 0.0), (1, 2, 3)  # at 0 there is no contrast
SPECTRA: dict[str, float | None] = {"soil": 2.0, "noise": 0.0, "waves": None}
TEXTURES = ("grass", *SPECTRA)
COLUMNS = (
    *("texture", "intensity", "model", "seeds", "target", "by encoder", "shared", "AUC", "R2"),
    *("bound", "warned", "no contrast", "n_shared", "seconds"),
)
MODELS: dict[str, dict[str, Any]] = {"contrastive": {}, "`separation=0`": {"separation": 0.0}}


def main() -> None:
    """Train what is not in the file yet; models beside the contrastive one with one seed only."""
    if "--page" not in sys.argv:
        chosen = [name for name in TEXTURES if name in sys.argv] or TEXTURES
        for seed in SEEDS:
            for intensity in INTENSITIES:
                for name in chosen:
                    _train(name, intensity, seed)
    page(_known())


def _train(name: str, intensity: float, seed: int) -> None:
    models = ("contrastive",) if seed > SEEDS[0] else (*MODELS, "VAE")
    done = [(r["texture"], r["intensity"], r["seed"], r["model"]) for r in _known()]
    missing = [model for model in models if (name, intensity, seed, model) not in done]
    if not missing:
        return
    data = digits_on(name, intensity, seed)
    for model in missing:
        run = {"texture": name, "intensity": intensity, "seed": seed, "model": model}
        run |= _result(data, model, seed)
        lines = [*_known(), run]
        (HERE / "digits.json").write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")
        sys.stderr.write(f"{run}\n")


def _result(data: DigitsOnGrass, model: str, seed: int) -> dict[str, Any]:
    begin = time.process_time()
    if model == "VAE":
        plane = standard_plane(data, random_state=seed)
        own = {"target": plane.accuracy, "target by encoder": plane.by_encoder}
        return own | {"seconds": time.process_time() - begin}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = contrastive(data, random_state=seed, **MODELS[model])
    (target, shared), leakage = found.spaces, found.leakage
    assert leakage is not None
    return {
        "target": target.accuracy,
        "target by encoder": target.by_encoder,
        "shared": shared.accuracy,
        "shared by encoder": shared.by_encoder,
        "bound": target.bound,
        "set_auc": leakage.set_auc,
        "target_r2": leakage.target_r2,
        "warned": any("carry what only the target has" in str(w.message) for w in caught),
        "no contrast": any("no contrast was found" in str(w.message) for w in caught),
        "n_shared": found.n_shared,
        "seconds": time.process_time() - begin,
    }


def digits_on(name: str, intensity: float, seed: int) -> DigitsOnGrass:
    """Return MNIST digits on a texture, the texture alone, and held-out digits."""
    if name == "grass" and intensity > 0:
        return fetch_mnist_on_grass(*SIZES, intensity=intensity, random_state=seed)
    rng = np.random.default_rng(seed)
    (digits, labels), (held_out, held_out_labels) = (
        _digits(part, n, rng) for part, n in (("train", SIZES[0]), ("test", SIZES[2]))
    )
    patches = [_patches(name, n, rng) for n in SIZES]
    return DigitsOnGrass(
        target=intensity * digits + patches[0],
        background=patches[1],
        target_labels=labels,
        feature_names=[],
        description=name,
        held_out=intensity * held_out + patches[2],
        held_out_labels=held_out_labels,
    )


def _patches(name: str, n: int, rng: np.random.Generator) -> Rows:
    """Return images of texture alone; photographs of grass all come from the same pool."""
    if name == "grass":
        return fetch_mnist_on_grass(1, n, random_state=int(rng.integers(2**31))).background
    return texture(n, SIDE, SPECTRA[name], rng).astype(np.float32)


def _known() -> list[dict[str, Any]]:
    path = HERE / "digits.json"
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def page(runs: list[dict[str, Any]]) -> None:
    """Write the page of the numbers."""
    keys = {(run["texture"], run["intensity"], run["model"]) for run in runs}
    rank = {name: i for i, name in enumerate((*TEXTURES, *MODELS, "VAE"))}
    order = sorted(keys, key=lambda key: (rank[key[0]], key[1], rank[key[2]]))
    lines = [
        _line(key, [r for r in runs if (r["texture"], r["intensity"], r["model"]) == key])
        for key in order
    ]
    table = "\n".join([f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|", *lines])
    (HERE / "digits.md").write_text(PAGE.format(table=table), encoding="utf-8")


def _line(key: tuple[str, float, str], runs: list[dict[str, Any]]) -> str:
    names = ("target", "target by encoder", "shared", "set_auc", "target_r2", "bound")
    cells = [
        _spread([run.get(name) for run in runs], 1 if name == "bound" else 2) for name in names
    ]
    cells += [_count(runs, "warned"), _count(runs, "no contrast")]
    sizes = sorted({str(run["n_shared"]) for run in runs if "n_shared" in run})
    cells += [", ".join(sizes), _spread([run.get("seconds") for run in runs], 0)]
    return f"| {key[0]} | {key[1]:g} | {key[2]} | {len(runs)} | {' | '.join(cells)} |"


def _count(runs: list[dict[str, Any]], name: str) -> str:
    known = [run[name] for run in runs if name in run]
    return f"{sum(known)} of {len(known)}" if known else ""


def _spread(values: list[float | None], digits: int) -> str:
    """The mean with the least and the greatest."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    mean, low, high = (f"{f(known):.{digits}f}" for f in (np.mean, np.min, np.max))
    return mean if len(known) == 1 else f"{mean} ({low} to {high})"


PAGE = """# Digits on textures

These are the results of `make digits`. The target has 12,000 MNIST digits on a texture, the
background 12,000 images of the texture alone; networks and all settings are the defaults (2 + 8
dimensions, hidden layers of 128 and 256). The textures are photographs of grass, and the generated
ones of `make_digits_on_texture` at 28 x 28 pixels: soil (`spectrum=2`), noise (`spectrum=0`) and
plane waves (`spectrum=None`). Accuracy is that of 20 nearest neighbours among 10,000 rows of the
target for 5,000 held-out rows with other digits and other patches, from the target latents and from
the shared latents, which should reveal nothing (0.1 is chance). Means are followed by the smallest
and the largest value over seeds, which change digits, patches and networks. Latents are posterior
means after `refine_steps=30`; "by encoder" uses the encoder alone, as in the paper. AUC and R2 are
those of `leakage_`, and "warned" counts the fits that warned of shared latents that carry the
target. `separation=0` is the paper's model; VAE is a standard autoencoder with two dimensions. The
bound is in nats per row of the training data, by encoders. What has no line yet has not been run.

A fit whose first training finds no contrast trains once more, and `n_shared` is then 24 in place of
8. "No contrast" counts the fits that said at the end that they found none. At intensity 0 the
target has no digits, and its patches are of the same photographs as those of the background; the
accuracies are then those of chance. Seconds are processor time of one thread, for the fit and its
judging. Lines without `n_shared` were measured before 19 November 2026, when every fit trained
once.

{table}

The penalty was designed, and `separation=2` chosen from 0.5, 1, 2 and 4 as the smallest weight
with an AUC of at most 0.61 and an R2 of at most 0.03 everywhere (of rows that trained), on images
of 14 x 14 pixels with 5,000 digits: grass (seed 0) and generated textures with spectra of 2 and
1.3 and less contrast (seed 0). Accuracies were printed beside these numbers and were looked at.
The term for excess precision was added after a fit of 12,000 digits (spectrum 2, intensity 1,
seed 0) whose shared latents recognised .38 of the digits, with 18 nats in those of target rows
and 9 in those of background rows. Plane waves were not looked at before the table was made. Warm-
up and learning rate are those of an earlier version, chosen on grass by accuracies.

## Why a first training fails on plane waves

At intensity 0.5 the target latents of the first training are used for the texture, in rows of both
sets, with and without the penalty. On images of 14 x 14 pixels (4,000 digits) they added 31.2 nats
to a held-out row of the target and 30.3 to one of the background, where they added 26.7 and -7.4 on
soil. The first trainings of seeds 1 and 2 (12,000 digits) gave .21 and .20 of the digits, shared
.13, with bounds of 448 and 444. Experiments of 19 November 2026, with images of 14 x 14 pixels,
3,000 + 3,000 rows, 2,000 steps and one seed, show two causes.
The smooth texture is not in the package: Gaussian fields with equal power up to two periods an
image and none beyond. "In use" are shared dimensions with a mean posterior variance below a half;
gains are nats that the target latents add to held-out rows; the bound is a mean over rows of both
sets.

| texture | n_shared | warm-up | bound | in use | gain, target | background | AUC |
|---|---|---|---|---|---|---|---|
| smooth | 24 | default | 131 | 11 | 11.2 | 12.6 | 0.72 |
| smooth | 24 | of both kinds | 195 | 17 | 30.0 | -9.8 | 0.94 |
| smooth | 8 | of both kinds | 119 | 8 | 22.0 | 31.1 | 0.51 |
| grass | 8 | default | 109 | 4 | 14.2 | -1.7 | 0.63 |
| grass | 8 | of both kinds | 119 | 6 | 13.4 | -19.2 | 0.80 |
| soil | 8 | default | 133 | 3 | 16.6 | 1.9 | 0.75 |
| soil | 8 | of both kinds | 149 | 7 | 16.6 | -20.3 | 0.64 |

First, the warm-up. Only the divergence of the target latents rises from zero, under noise that
falls from 20 times the variance of the data. Target latents, which cost nothing at first, describe
whatever varies most, and shared latents that are not used while there is most noise stay unused.
"Of both kinds" lets the weight of all divergences rise from zero, with noise of at least the
variance of the data until then. On these small images this is better by bound and by gain. With
the default, 24 shared dimensions do not help (the first line).

Second, eight dimensions are too few for this texture: twenty linear ones hold 99 % of its variance,
and what eight leave of it outweighs the digits in a row of the target. With both kinds warmed up,
waves of 14 x 14 pixels (5,000 digits, all steps, latents by encoders) gave .12 of the digits and
the warning with 8 shared dimensions, and .51, shared .13, without a warning, with 24. At full size
and with 8 (12,000 digits, seed 1) they gave .22, shared .12, and the warning.

The first training keeps its warm-up: other ones let digits into the shared latents at full size
(12,000 digits on grass, seed 1, intensity 0.5, the sizes of the table; "less noise" warms up the
target latents alone, with noise of at least the variance of the data until then):

| warm-up | bound | AUC | target | shared |
|---|---|---|---|---|
| default | 382 | 0.72 | 0.73 | 0.12 |
| of both kinds | 414 | 0.60 | 0.62 | 0.32 |
| less noise | 416 | 0.55 | 0.70 | 0.21 |

On waves at intensity 0.5, of the same size and seed, "less noise" with 24 shared dimensions gave
.74 of the digits from the target latents and .12 from the shared ones, with a bound of 859 (445
with 8 dimensions and both kinds warmed up), an AUC of 0.50 and no warning. No warm-up and 24
dimensions did as well: .71 and .12, a bound of 886, an AUC of 0.52, no warning.

## The second training

A fit whose held-out rows show no contrast therefore trains again from the beginning, without
warm-up and with three times as many shared dimensions. Fits that find a contrast are as before, and
cost no more. The settings of the second training were first seen on waves (seed 1, above). Then
they were compared without labels on the smooth texture: images of 14 x 14 pixels, 4,000 + 4,000
rows, all steps, one seed. "Error" is the standard error of the difference of the two gains.

| n_shared | warm-up | bound | gain, target | background | difference over its error |
|---|---|---|---|---|---|
| 8 | default | 182 | 11.2 | 32.5 | -9.0 |
| 24 | default | 237 | 0.3 | 5.3 | -1.5 |
| 16 | none | 367 | 40.9 | -4.5 | 15.3 |
| 24 | none | 385 | 44.0 | -15.4 | 20.5 |

At full size, the first training on waves at intensity 0.5 is that of the lines above, and the
second is that of the table. Without a contrast a fit now looks twice, each time at two standard
errors, so that it claims one by chance in about 5 % of cases in place of 2 %.

## Why bound and leakage do not choose

On grass, bound and AUC would have chosen otherwise. In the sum `f_s + f_t` shared latents may
describe digits too, and a model that does so can have the higher bound; its fits did not warn.

Stronger classifiers would not have seen it. Of 1,500 held-out rows of the fit on grass with both
kinds warmed up (latents by encoders, five folds), 20 neighbours in the shared space recognise .27
of the digits, but tell target from background by an AUC of .59 only; a logistic regression has .55,
a network of 32 hidden units .61 and boosted trees .57. Neighbours, ridge regression and a random
forest predict the target latents with an R2 of at most .01. What the shared latents know about the
digit is thus neither in their distribution over rows nor in the target latents, and the penalty
and `leakage_` look at these two alone. Labels show it (`leakage(..., labels=...)`). Of the default
fit, whose shared latents recognise .12, neighbours have an AUC of .54 and the other three .74, .78
and .66, which are larger, and the posteriors' log standard deviations tell the sets apart in both
fits (.88 to 1.00). None of these numbers says which fit is clean.

Without a contrast (grass of 14 x 14 pixels in both sets, 2,000 + 2,000 patches, 60 epochs, three
seeds) target latents added as much to held-out rows of both sets: differences of -0.5, 1.5 and 0.8
nats with standard errors of 0.8, 0.9 and 0.9, and each fit said that no contrast was found.

A penalty on variance that target latents add beyond what the target has in excess was tried on the
smooth texture too; it raised the bound, and did not cure eight dimensions.
"""


if __name__ == "__main__":
    main()
