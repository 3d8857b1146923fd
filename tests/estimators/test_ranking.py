"""The order in which features are named: rare counts do not lead."""

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.estimators.summary import leading, ranking_weights, summary


def counts(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Six of 30 features respond; ten more have four counts in the target, where it responds."""
    rng = np.random.default_rng(seed)
    mean, loadings, latent = rng.uniform(0.5, 4.0, 40), np.zeros(40), rng.standard_normal(300)
    mean[30:], loadings[:6] = 0.0, 0.7
    target = rng.poisson(mean * np.exp(np.outer(latent, loadings)))
    background = rng.poisson(np.tile(mean, (300, 1)))
    most = np.argsort(-latent)[:20]
    for feature in range(30, 40):
        np.add.at(target[:, feature], rng.choice(most, 4), 1)
        background[rng.integers(300), feature] += 1
    return target.astype(float), background.astype(float)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("likelihood", ["poisson", "negative_binomial"])
def test_rare_features_do_not_lead(seed: int, likelihood: str) -> None:
    target, background = counts(seed)
    model = clvm.ContrastiveLVM(1, 2, likelihood=likelihood, random_state=0)
    model.fit(target, background=background)
    loadings = model.target_components_[0]
    assert max(leading(loadings, 10)) >= 30  # by loadings alone they do
    [dimension] = summary(model, dimensions=1, top=10).dimensions
    assert all(int(name[1:]) < 30 for name, _ in dimension.features)
    drawn = clvm.plots.plot_loadings(model, n=10).get_yticklabels()
    assert all(int(label.get_text().split()[-1]) < 30 for label in drawn)


def test_weights_are_the_root_of_the_information_of_an_entry() -> None:
    """For canonical links it is the variance of an entry; loadings of measurements keep theirs."""
    target, background = counts(0)
    poisson = clvm.ContrastiveLVM(1, 2, likelihood="poisson").fit(target, background=background)
    rates = [np.exp(poisson.mean_), np.exp(poisson.background_mean_)]
    np.testing.assert_allclose(ranking_weights(poisson, 40), np.sqrt(np.mean(rates, axis=0)))

    binary = clvm.ContrastiveLVM(1, 2, likelihood="bernoulli")
    binary.fit(np.minimum(target, 1.0), background=np.minimum(background, 1.0))
    chance = 1.0 / (1.0 + np.exp(-np.stack([binary.mean_, binary.background_mean_])))
    expected = np.sqrt((chance * (1.0 - chance)).mean(axis=0))
    np.testing.assert_allclose(ranking_weights(binary, 40), expected)

    for shell in (
        clvm.ContrastiveLVM(1, 2),
        clvm.ContrastiveLVM(1, 2, likelihood="student_t"),
        clvm.ContrastivePCA(1, alpha=1.0),
    ):
        fitted = shell.fit(target[:, :30], background=background[:, :30])
        np.testing.assert_array_equal(ranking_weights(fitted, 30), 1.0)
