"""The paper's synthetic sets have the moments its supplement gives."""

import numpy as np
import pytest

from contrastive_lvm import datasets

TABLE = {  # mean and standard deviation of the three blocks of features
    0: ((0, 1), (0, 1), (0, 10)),
    1: ((0, 1), (3, 1), (0, 10)),
    2: ((6, 1), (0, 1), (0, 10)),
    3: ((6, 1), (3, 1), (0, 10)),
    "background": ((0, 3), (0, 1), (0, 10)),
}


@pytest.mark.parametrize("group", TABLE)
def test_subgroups_follow_the_table(group: int | str) -> None:
    data = datasets.make_subgroups(8000, 4000, random_state=0)
    rows = data.background if group == "background" else data.target[data.target_labels == group]
    for block, (mean, std) in enumerate(TABLE[group]):
        part = rows[:, 10 * block : 10 * block + 10]
        standard_error = std / np.sqrt(len(rows))
        assert np.abs(part.mean(axis=0) - mean).max() < 4.5 * standard_error
        assert np.abs(part.std(axis=0) / std - 1).max() < 4.5 / np.sqrt(2 * len(rows))


@pytest.mark.parametrize("n", [4, 7, 400])
def test_subgroups_are_equal_up_to_one_row(n: int) -> None:
    sizes = np.bincount(datasets.make_subgroups(n, 5, random_state=0).target_labels, minlength=4)
    assert sizes.max() - sizes.min() <= 1


def test_contrastive_set_is_the_generative_model() -> None:
    data = datasets.make_contrastive(20000, 20000, n_features=10, n_shared=3, random_state=0)
    excess = np.cov(data.target.T) - np.cov(data.background.T)
    values = np.linalg.eigvalsh(excess)[::-1]
    assert values[1] > 10 * abs(values[2])  # two target dimensions
    spectrum = np.linalg.eigvalsh(np.cov(data.background.T))
    np.testing.assert_allclose(spectrum[:7], 0.25, rtol=0.1)  # noise of 0.5 beyond three shared


def test_outliers_are_appended_to_the_same_rows() -> None:
    clean = datasets.make_contrastive(random_state=5)
    dirty = datasets.make_outliers(random_state=5)
    np.testing.assert_array_equal(dirty.target[:400], clean.target)
    np.testing.assert_array_equal(dirty.background[:400], clean.background)
    outliers = dirty.target[dirty.target_labels == -1]
    assert outliers.shape == (20, 50)
    assert np.abs(outliers).max() <= 20
    assert np.abs(outliers).mean() == pytest.approx(10, rel=0.1)
    generators = (np.random.default_rng(5) for _ in range(2))
    first, again = (datasets.make_outliers(random_state=rng) for rng in generators)
    np.testing.assert_array_equal(first.target, again.target)


@pytest.mark.parametrize(
    "make", [datasets.make_subgroups, datasets.make_contrastive, datasets.make_outliers]
)
def test_same_seed_same_rows(make: object) -> None:
    assert callable(make)
    first, again, other = make(random_state=1), make(random_state=1), make(random_state=2)
    np.testing.assert_array_equal(first.target, again.target)
    np.testing.assert_array_equal(first.background, again.background)
    assert not np.array_equal(first.target, other.target)
    assert len(first.feature_names) == first.target.shape[1]


@pytest.mark.parametrize(
    ("settings", "pattern"),
    [
        ({"n_target": 0}, "n_target=0 must be an integer"),
        ({"n_background": -3}, "n_background=-3"),
        ({"noise_std": 0.0}, "noise_std=0.0 must be a positive number"),
        ({"n_clusters": 1.5}, "n_clusters=1.5"),
    ],
)
def test_bad_sizes_are_refused(settings: dict[str, float], pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        datasets.make_contrastive(**settings)  # type: ignore[arg-type]
