"""The number of subgroups: valleys, levels, replicates."""

from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.priors.mixture import Mixture
from contrastive_lvm.resampling.subgroup_number import LatentUnits, choose_number
from contrastive_lvm.resampling.unimodality import QUANTILES, SIZES, dip, dip_pvalue

NOISE = 0.1  # variance of the latents given their rows


def units(latents: Any) -> LatentUnits:
    """Latents as a fit without subgroups gives them."""
    centred = latents - latents.mean(axis=0)
    root = np.linalg.inv(np.linalg.cholesky(np.cov(centred.T, ddof=0)))
    return LatentUnits(centred @ root.T * np.sqrt(1 - NOISE), NOISE * np.eye(latents.shape[1]))


def test_dip_is_the_distance_from_the_nearest_unimodal_distribution() -> None:
    """Two equal heaps: the best unimodal distribution is straight between them."""
    heaps = np.concatenate([np.linspace(0, 1, 50), np.linspace(100, 101, 50)])
    assert dip(heaps) > 0.2
    assert dip(np.linspace(0, 1, 100)) < 1e-12
    assert dip(np.linspace(0, 1, 100) ** 3) < 1e-12  # one mode at an end
    assert dip(np.zeros(5)) == 0.0


def test_quantiles_are_those_of_uniform_samples() -> None:
    rng = np.random.default_rng(1)
    drawn = [np.sqrt(80) * dip(rng.random(80)) for _ in range(400)]
    row = QUANTILES[list(SIZES).index(80)]
    assert np.mean(np.array(drawn) > row[3]) == pytest.approx(0.05, abs=0.035)
    assert np.median(drawn) == pytest.approx(row[0], abs=0.02)


def test_pvalues_of_skewed_and_heavy_tailed_samples_are_large() -> None:
    rng = np.random.default_rng(0)
    draws: list[Any] = [rng.exponential, rng.standard_normal, lambda size: rng.standard_t(5, size)]
    for draw in draws:
        small = [dip_pvalue(draw(size=200)) < 0.05 for _ in range(40)]
        assert np.mean(small) <= 0.05


@pytest.mark.parametrize("kind", ["skewed", "heavy"])
def test_clouds_with_one_centre_are_one_subgroup(kind: str) -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        cloud = rng.exponential(size=(150, 2))
        if kind == "heavy":
            cloud = rng.standard_normal((150, 2)) / np.sqrt(rng.chisquare(5, (150, 1)) / 5)
        found = choose_number(units(cloud), Mixture(), 4, n_resamples=19, rng=rng)
        assert found.n_components == 1
        assert found.table.lower_bound.max() > 5.0  # components fit better all the same


@pytest.mark.filterwarnings("ignore:n_shared=")
def test_planted_subgroups_are_counted() -> None:
    data = clvm.datasets.make_subgroups(random_state=1)
    model = clvm.ContrastiveLVM(2, 10, latent_prior=Mixture(), random_state=0)
    model.fit(data.target, background=data.background)
    assert model.n_subgroups_ == 4
    assert model.predict_proba(data.target).shape == (400, 4)


def test_replicates_are_units_and_their_lack_is_noticed() -> None:
    """Two subgroups of 20 replicates each, whose rows are alike."""
    rng = np.random.default_rng(0)
    centres = np.repeat([-4.0, 4.0], 20) + rng.standard_normal(40)
    t = np.repeat(centres, 5)[:, None] + 0.3 * rng.standard_normal((200, 1))
    X = t @ rng.standard_normal((1, 6)) + 0.3 * rng.standard_normal((200, 6))
    model = clvm.ContrastiveLVM(1, 0, latent_prior=Mixture(), random_state=0)
    with pytest.warns(UserWarning, match="groups=None, but rows next to each other are alike"):
        model.fit(X)
    assert model.fit(X, groups=np.repeat(np.arange(40), 5)).n_subgroups_ == 2


def test_choice_is_a_table_and_respects_the_seed() -> None:
    data = clvm.datasets.make_subgroups(random_state=0)
    words: dict[str, Any] = {"background": data.background, "random_state": 3, "most": 3}
    model = clvm.ContrastiveLVM(2, 10)
    first, second = (clvm.choose_subgroups(data.target, model=model, **words) for _ in range(2))
    assert first.n_components == 3
    assert first.pvalue == second.pvalue == 1 / 40
    assert list(first.table.n_components) == [1, 2, 3]
    assert (first.table.log_likelihood == second.table.log_likelihood).all()


def test_stability_is_that_of_refits_to_resampled_replicates() -> None:
    """Clear subgroups stay; halves of one cloud do not. Few replicates say less than many rows."""
    rng = np.random.default_rng(0)
    W, groups = rng.standard_normal((2, 8)), np.repeat(np.arange(20), 10)

    def found(away: float, replicates: Any) -> clvm.SubgroupStability:
        centres = rng.standard_normal((20, 2)) + away * (np.arange(20) % 2)[:, None]
        t = centres[groups] + 0.2 * rng.standard_normal((200, 2))
        X = t @ W + 0.3 * rng.standard_normal((200, 8))
        model = clvm.ContrastiveLVM(2, 0, latent_prior=Mixture(2)).fit(X)
        return clvm.subgroup_stability(model, X, groups=replicates, random_state=0)

    clear, unclear = found(8.0, groups), found(0.0, groups)
    assert clear.adjusted_rand.shape == (20,)
    assert clear.adjusted_rand.min() > 0.99
    assert clear.comembership.min() > 0.99
    assert unclear.adjusted_rand.mean() < 0.8
    assert unclear.adjusted_rand.mean() < found(0.0, None).adjusted_rand.mean()
    with pytest.raises(clvm.exceptions.InvalidParameterError, match="no subgroups"):
        clvm.subgroup_stability(clvm.ContrastiveLVM(1, 0).fit(np.eye(5)), np.eye(5))
