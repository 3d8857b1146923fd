"""Whether a fit says that its background is not adequate: where it misleads, and not elsewhere."""

import warnings
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.estimators.model_check import SetCovariance, check_background


def drawn(seed: int, *, own: int = 0, noise: float = 1.0, n: int = 300, size: float = 0.5) -> Any:
    """Draw rows with 4 shared and 2 target dimensions; `own` only of the background."""
    rng = np.random.default_rng(seed)
    S, W = rng.standard_normal((30, 4)), size * rng.standard_normal((30, 2))
    B = rng.standard_normal((30, own))
    X = rng.standard_normal((n, 4)) @ S.T + rng.standard_normal((n, 2)) @ W.T
    Y = rng.standard_normal((n, 4)) @ S.T + rng.standard_normal((n, own)) @ B.T
    return X + rng.standard_normal(X.shape), Y + noise * rng.standard_normal(Y.shape), W


def largest_angle(model: clvm.ContrastiveLVM, W: np.ndarray) -> float:
    found, truth = (np.linalg.qr(M)[0] for M in (model.target_components_.T, W))
    cosine = np.linalg.svd(found.T @ truth)[1].min()
    return float(np.degrees(np.arccos(min(1.0, cosine))))


@pytest.mark.parametrize("seed", range(8))
def test_ordinary_data_give_no_warning(seed: int) -> None:
    X, Y, _ = drawn(seed, n=(60, 300)[seed % 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clvm.ContrastiveLVM(2, (4, "auto")[seed // 4]).fit(X, background=Y)


@pytest.mark.parametrize("seed", range(3))
def test_structure_of_the_background_alone(seed: int) -> None:
    X, Y, W = drawn(seed, own=1)
    with pytest.warns(UserWarning, match="n_background=1 or more") as said:
        turned = clvm.ContrastiveLVM(2, 4).fit(X, background=Y)
    assert len(said) == 1
    assert said[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = clvm.ContrastiveLVM(2, 4, n_background=1).fit(X, background=Y)
    plain = clvm.ContrastiveLVM(2, 4).fit(X, background=drawn(seed)[1])
    assert largest_angle(model, W) < 1.2 * largest_angle(plain, W) < largest_angle(turned, W)


def test_many_features_are_sampled() -> None:
    rng = np.random.default_rng(0)
    S, W, own = (rng.standard_normal((200, n)) for n in (4, 2, 1))
    X, Y = (rng.standard_normal((300, 4)) @ S.T for _ in range(2))
    X = X + 0.3 * rng.standard_normal((300, 2)) @ W.T + rng.standard_normal(X.shape)
    Y = Y + rng.standard_normal(Y.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clvm.ContrastiveLVM(2, 4).fit(X, background=Y)
    Y = Y + 1.5 * rng.standard_normal((300, 1)) @ own.T
    with pytest.warns(UserWarning, match="n_background=1 or more"):
        clvm.ContrastiveLVM(2, 4).fit(X, background=Y)


@pytest.mark.parametrize("seed", range(3))
def test_noise_of_the_background_that_hides_weak_target_dimensions(seed: int) -> None:
    X, Y, _ = drawn(seed, noise=2.0, size=0.3)
    with pytest.warns(UserWarning, match="times that of the background.*sets='own'") as said:
        clvm.ContrastiveLVM(2, 4).fit(X, background=Y)
    assert len(said) == 1


def test_what_is_measured() -> None:
    X, Y, _ = drawn(0, noise=2.0)
    model = clvm.ContrastiveLVM(2, 4).fit(X, background=Y)
    sets = [SetCovariance(np.cov(rows.T), len(rows)) for rows in (X, Y)]
    found = check_background(model.posterior_, *sets)
    assert found.noise_differs
    assert found.noise_ratio == pytest.approx(0.3, abs=0.06)
    assert not found.has_own_structure
    X, Y, _ = drawn(0)
    model = clvm.ContrastiveLVM(2, 4).fit(X, background=Y)
    sets = [SetCovariance(np.cov(rows.T), len(rows)) for rows in (X, Y)]
    found = check_background(model.posterior_, *sets)
    assert not found.noise_differs
    assert found.noise_ratio == pytest.approx(1.0, abs=0.15)
    assert found.excess < 2.0


def test_noise_that_turns_the_target_dimensions() -> None:
    rng = np.random.default_rng(1)
    S, W = rng.standard_normal((30, 4)), 0.15 * rng.standard_normal((30, 2))
    X = rng.standard_normal((300, 4)) @ S.T + rng.standard_normal((300, 2)) @ W.T
    X += rng.standard_normal(X.shape)
    Y = rng.standard_normal((300, 4)) @ S.T + 0.5 * rng.standard_normal((300, 30))
    with pytest.warns(UserWarning, match="sets='own'"):
        clvm.ContrastiveLVM(2, 4).fit(X, background=Y)


def unequal(seed: int, spread: float = 0.5, *, heavy: bool = False) -> Any:
    """Draw rows with 3 shared and 2 target dimensions, and noise that differs by feature."""
    rng = np.random.default_rng(seed)
    S, noise = rng.standard_normal((20, 3)), np.exp(spread * rng.standard_normal(20))
    W = 1.2 * np.linalg.qr(rng.standard_normal((20, 2)))[0]
    X = rng.standard_normal((150, 3)) @ S.T + rng.standard_normal((150, 2)) @ W.T
    Y = rng.standard_normal((150, 3)) @ S.T
    one, two = rng.standard_normal((2, 150, 20))
    if heavy:
        one, two = np.exp(one) - np.exp(0.5), np.exp(two) - np.exp(0.5)
    return X + noise * one, Y + noise * two


def warned(model: clvm.ContrastiveLVM, X: Any, Y: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, background=Y)
    return [str(each.message) for each in said]


@pytest.mark.parametrize("seed", range(6))
def test_noise_unequal_by_feature_is_noticed_where_it_turns_the_target_dimensions(
    seed: int,
) -> None:
    (said,) = warned(clvm.ContrastiveLVM(2, 3), *unequal(seed))
    assert "noise='feature'" in said
    own = clvm.ContrastiveLVM(2, 3, likelihood=clvm.Gaussian(noise="feature"))
    assert warned(own, *unequal(seed)) == []


@pytest.mark.parametrize("seed", range(6))
def test_heavy_tails_are_not_taken_for_unequal_noise(seed: int) -> None:
    said = warned(clvm.ContrastiveLVM(2, 3), *unequal(seed, 0.0, heavy=True))
    assert not any("noise='feature'" in each for each in said)


def test_one_set_alone_is_no_evidence_of_unequal_noise() -> None:
    rng = np.random.default_rng(0)
    X, Y, _ = drawn(0)
    X += 2.0 * np.exp(rng.standard_normal(30)) * rng.standard_normal(X.shape)
    said = warned(clvm.ContrastiveLVM(2, 4), X, Y)
    assert not any("noise='feature'" in each for each in said)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n_shared", [1, 2, 3])
def test_too_few_shared_dimensions_are_noticed(n_shared: int, seed: int) -> None:
    X, Y, _ = drawn(seed)
    (said,) = warned(clvm.ContrastiveLVM(2, n_shared), X, Y)
    assert said.startswith(f"n_shared={n_shared} is too few")


def test_noise_at_its_floor_is_noticed() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 100, 6))
    X[:, 0], Y[:, 0] = X[:, 1], Y[:, 1]  # a dimension describes both without noise
    model = clvm.ContrastiveLVM(1, 1, likelihood=clvm.Gaussian(noise="feature"))
    (said,) = warned(model, X, Y)
    assert said.startswith("2 of 6 features have no noise left")
    assert "likelihood='gaussian'" in said
