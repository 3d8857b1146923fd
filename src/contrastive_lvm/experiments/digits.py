"""Digits on grass: the contrastive autoencoder against standard ones (the paper, section 3.5)."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from sklearn.manifold import TSNE
from sklearn.neighbors import KNeighborsClassifier

from contrastive_lvm.arrays import Array
from contrastive_lvm.datasets import DigitsOnGrass, fetch_mnist_on_grass
from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE
from contrastive_lvm.estimators.leakage import Leakage
from contrastive_lvm.estimators.vae import VAE
from contrastive_lvm.experiments.drawing import Labels, grid_of_latents
from contrastive_lvm.experiments.outcome import Claim, Outcome, paragraphs, tabulate

NOTES = """
Accuracy is that of 20 nearest neighbours among rows of the target, for held-out rows with other
digits and other patches of grass; 0.1 is chance. Latents are posterior means after 30 steps of
refinement; "by encoder" means that the encoder alone is used, as in the paper.

The paper shows a picture and says that a standard autoencoder confounds the digits. Here, a t-SNE
of its ten dimensions does separate them, and neighbours in all ten dimensions do so even better.
Two dimensions of the contrastive autoencoder identify 1.2 to 1.4 times as many digits as two
dimensions of a standard one, with four seeds.

Shared latents should say nothing about the digits. docs/digits.md compares them with and without
the penalty `separation`, on several textures.

The paper's pictures also show rows of the data; we may not publish the photographs of grass.
"""


class Space(NamedTuple):
    """A space of latents, and the accuracy of neighbours in it for held-out digits."""

    name: str
    latents: Array  # (k, 2 or more) of the held-out rows
    accuracy: float
    by_encoder: float | None  # the same with latents of the encoder alone
    bound: float | None  # of the model, nats per row of its data


class DigitsResult(NamedTuple):
    """The results of a contrastive autoencoder on one set of images."""

    spaces: tuple[Space, ...]
    leakage: Leakage | None  # of held-out rows
    denoised: Array  # (n, 784) samples
    background: Array  # (n, 784), without noise
    n_shared: int  # shared dimensions; more than 8 after a second training


def run(*, quick: bool = False) -> Outcome:
    """Compare the contrastive autoencoder with standard ones."""
    little: dict[str, Any] = {"hidden_layer_sizes": (16,), "max_epochs": 2, "refine_steps": 0}
    sizes, words = ((300, 250, 100), little) if quick else ((30_000, 30_000, 5_000), {})
    data = fetch_mnist_on_grass(*sizes)
    plain = contrastive(data, **words)
    flat, ten, drawn = standard(data, **words)
    ours = plain.spaces[0]._replace(name="contrastive VAE")
    spaces = (ours, flat, ten, drawn)
    samples = {
        "samples of the target, denoised": plain.denoised,
        "samples of the background": plain.background,
    }
    return Outcome(
        name="digits",
        title="Digits on grass",
        data=f"{data.description} {sizes[0]:,} + {sizes[1]:,} images, {sizes[2]:,} held out, one "
        "seed",
        table=tabulate(
            "model",
            {
                "target latents": {s.name: s.accuracy for s in spaces},
                "by encoder": {s.name: s.by_encoder for s in spaces if s.by_encoder is not None},
                "shared latents": {ours.name: plain.spaces[1].accuracy},
            },
        ),
        claims=_claims(ours, flat),
        figures={
            "latents": draw_spaces((ours, flat, drawn), data.held_out_labels),
            "samples": draw_images(samples),
        },
        notes=paragraphs(NOTES),
    )


def _claims(ours: Space, flat: Space) -> list[Claim]:
    return [
        Claim(
            "Latents of the contrastive autoencoder cluster by digit.",
            "accuracy of the target latents",
            ours.accuracy,
            0.62,
        ),
        Claim(
            "A standard autoencoder confounds digits and grass.",
            "accuracy over that of two dimensions of it",
            ours.accuracy / flat.accuracy,
            1.1,
        ),
    ]


def contrastive(
    data: DigitsOnGrass, *, separation: float = 2.0, random_state: int = 0, **words: Any
) -> DigitsResult:
    """Train a contrastive autoencoder of 2 + 8 dimensions: both spaces, and samples."""
    model = ContrastiveVAE(2, 8, separation=separation, random_state=random_state, **words)
    model.fit(data.target, background=data.background)
    spaces = _spaces(model, data, "target", "shared")
    denoised = model.sample(16, of="denoised", random_state=0)
    seen = model.reconstruct(model.sample(16, of="background", random_state=0), of="background")
    return DigitsResult(spaces, model.leakage_, denoised, seen, model.n_shared_)


def standard_plane(data: DigitsOnGrass, *, random_state: int = 0, **words: Any) -> Space:
    """Train a standard autoencoder of two dimensions."""
    model = VAE(2, random_state=random_state, **words).fit(data.target)
    return _spaces(model, data, "VAE")[0]


def standard(data: DigitsOnGrass, *, random_state: int = 0, **words: Any) -> tuple[Space, ...]:
    """Train standard autoencoders of 2 and of 10 dimensions, with a t-SNE of the latter."""
    flat = standard_plane(data, random_state=random_state, **words)
    model = VAE(10, random_state=random_state, **words).fit(data.target)
    (ten,) = _spaces(model, data, "VAE of 10")
    drawn: Array = TSNE(random_state=random_state).fit_transform(ten.latents)
    half, labels = len(drawn) // 2, data.held_out_labels
    # t-SNE has no map for new rows: one half of them is classified by the other.
    apart = _accuracy(drawn[:half], labels[:half], drawn[half:], labels[half:])
    return flat, ten, Space("t-SNE of VAE of 10", drawn, apart, None, None)


def _spaces(model: ContrastiveVAE | VAE, data: DigitsOnGrass, *names: str) -> tuple[Space, ...]:
    """Return a model's spaces of latents, judged with refinement and by the encoder alone."""
    accuracies, labels = [], data.target_labels[:10_000]
    for steps in (0, model.refine_steps):
        model.set_params(refine_steps=steps)
        known, new = _latents(model, data.target[:10_000]), _latents(model, data.held_out)
        pairs = zip(known, new, strict=True)
        accuracies.append([_accuracy(k, labels, h, data.held_out_labels) for k, h in pairs])
    by_encoder, refined = accuracies
    n_rows = len(data.target) + (len(data.background) if isinstance(model, ContrastiveVAE) else 0)
    found = zip(names, new, refined, by_encoder, strict=True)
    return tuple(Space(*own, model.lower_bound_ / n_rows) for own in found)


def _latents(model: ContrastiveVAE | VAE, X: npt.NDArray[np.float32]) -> list[Array]:
    if isinstance(model, VAE):
        return [np.asarray(model.transform(X))]
    found = model.latents(X)
    return [np.asarray(found.target), np.asarray(found.shared)]


def _accuracy(known: Array, labels: Labels, new: Array, new_labels: Labels) -> float:
    judge = KNeighborsClassifier(20).fit(known, labels)
    return float(judge.score(new, new_labels))


def draw_spaces(spaces: tuple[Space, ...], labels: Labels) -> Figure:
    """Draw planes of at most 2,000 rows side by side, each with its accuracy."""
    panels = {f"{s.name}  ({s.accuracy:.2f})": s.latents[:2000] for s in spaces}
    return grid_of_latents(panels, labels[:2000])


def draw_images(rows: dict[str, Array], count: int = 12) -> Figure:
    """Draw rows of images with their names above."""
    figure = Figure(figsize=(0.45 * count, 0.75 * len(rows)), layout="constrained")
    grids = figure.subplots(len(rows), 1, squeeze=False)[:, 0]
    for ax, (name, images) in zip(grids, rows.items(), strict=True):
        ax.imshow(_strip(images[:count]), cmap="gray", interpolation="nearest")
        ax.set_title(name, fontsize=9, loc="left", pad=2)
        ax.set_axis_off()
    return figure


def _strip(images: Array) -> Array:
    """Put images side by side, each scaled from its darkest to its lightest pixel."""
    low, high = np.percentile(images, [1, 99], axis=1, keepdims=True)
    scaled = np.clip((images - low) / (high - low), 0.0, 1.0).reshape(-1, 28, 28)
    framed = np.pad(scaled, ((0, 0), (0, 0), (0, 2)), constant_values=1.0)
    return np.hstack(list(framed))
