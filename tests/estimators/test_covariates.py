"""Covariates of users: coded, named, removed, refused; against the brute-force joint normal."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn import config_context
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import contrastive_lvm as clvm
from contrastive_lvm.exceptions import InvalidDataError
from tests.oracles import Array

D = 6
SEXES = np.array(["female", "male", "other"])


def people(n: int, seed: int, shift: float = 0.0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    age = 50.0 + 10.0 * rng.normal(size=n) + shift
    return pd.DataFrame({"age": age, "sex": SEXES[rng.integers(0, 3, n)]})


EFFECTS = np.random.default_rng(0).normal(size=(3, D)) * np.array([[0.1], [2.0], [-2.0]])


def rows_of(known: pd.DataFrame, seed: int, *, target: bool, missing: float = 0.0) -> Array:
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(1)
    S, W = fixed.normal(size=(2, D)), 1.5 * fixed.normal(size=(1, D))
    n = len(known)
    coded = np.column_stack([known["age"], known["sex"] == "male", known["sex"] == "other"])
    X = rng.normal(size=(n, 2)) @ S + 0.5 * rng.normal(size=(n, D)) + coded.astype(float) @ EFFECTS
    X = X + rng.normal(size=(n, 1)) @ W if target else X
    return np.asarray(np.where(rng.random(X.shape) < missing, np.nan, X))


def sets(n: int = 60, missing: float = 0.0) -> tuple[Array, Array, pd.DataFrame, pd.DataFrame]:
    C, E = people(n, 1, shift=3.0), people(n + 10, 2)
    X = rows_of(C, 3, target=True, missing=missing)
    return X, rows_of(E, 4, target=False, missing=missing), C, E


def fitted(missing: float = 0.0, n: int = 60, **words: Any) -> Any:
    X, B, C, E = sets(n, missing)
    model = clvm.ContrastiveLVM(1, 2, **words)
    return model.fit(X, background=B, covariates=C, background_covariates=E)


def normal_of(model: Any, known: pd.DataFrame, of: str) -> tuple[Array, Array]:
    """Means of rows, (N, D), and their covariance, from public attributes alone."""
    S, W, none = model.shared_components_, model.target_components_, np.zeros((1, D))
    own, target = ("", True) if of == "target" else ("background_", False)
    coded = np.column_stack([known["age"], known["sex"] == "male", known["sex"] == "other"])
    effects = getattr(model, f"{own}covariate_effects_")
    centred = coded.astype(float) - model.covariate_mean_.to_numpy()
    means = getattr(model, f"{own}mean_") + centred @ effects.to_numpy()
    W = W if target else none
    psi = np.broadcast_to(getattr(model, f"{own}noise_variance_"), (D,))
    return means, S.T @ S + W.T @ W + np.diag(psi)


@pytest.mark.parametrize("effects", ["shared", "own"])
@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("noise", [clvm.Gaussian(), clvm.Gaussian("feature", "own")], ids=repr)
def test_predictions_are_those_of_the_joint_normal(
    noise: clvm.Gaussian, missing: float, effects: str
) -> None:
    engine = clvm.EM(tol=1e-4)
    model = fitted(missing, likelihood=noise, covariate_effects=effects, inference=engine)
    C = people(8, 9)
    X = rows_of(C, 10, target=True, missing=0.3)
    for of in ("target", "background"):
        means, cov = normal_of(model, C, of)
        scores = model.score_samples(X, of=of, covariates=C)
        filled, std = model.impute(X, of=of, return_std=True, covariates=C)
        shared = model.latents(X, of=of, covariates=C).shared
        for i, row in enumerate(X):
            seen, gone = ~np.isnan(row), np.isnan(row)
            inner = cov[np.ix_(seen, seen)]
            assert scores[i] == pytest.approx(
                multivariate_normal(means[i, seen], inner).logpdf(row[seen]), rel=1e-10
            )
            gain = np.linalg.solve(inner, row[seen] - means[i, seen])
            assert np.allclose(
                filled[i, gone], means[i, gone] + cov[np.ix_(gone, seen)] @ gain, atol=1e-10
            )
            left = cov[np.ix_(gone, gone)] - cov[np.ix_(gone, seen)] @ np.linalg.solve(
                inner, cov[np.ix_(seen, gone)]
            )
            assert np.allclose(std[i, gone], np.sqrt(np.diagonal(left)), atol=1e-10)
            assert np.allclose(shared[i], model.shared_components_[:, seen] @ gain, atol=1e-10)


def test_effects_are_found_and_named() -> None:
    model = fitted(n=3000)
    table = model.covariate_effects_
    assert list(table.index) == ["age", "sex[male]", "sex[other]"]
    assert list(table.columns) == [f"x{i}" for i in range(D)]
    assert np.allclose(table.loc["age"], EFFECTS[0], atol=0.02)
    assert np.allclose(table.iloc[1:], EFFECTS[1:], atol=0.25)
    assert table.equals(model.background_covariate_effects_)
    own = fitted(n=500, covariate_effects="own")
    assert not own.covariate_effects_.equals(own.background_covariate_effects_)
    X, B, _, _ = sets()
    assert clvm.ContrastiveLVM(1, 2).fit(X, background=B).covariate_effects_ is None


def test_the_units_and_coding_of_covariates_change_nothing_else() -> None:
    X, B, C, E = sets()
    model = fitted()
    months = [12.0 * known["age"] + 1e4 for known in (C, E)]
    dummies = [
        pd.DataFrame({"months": m, "male": c.sex == "male", "other": c.sex == "other"})
        for m, c in zip(months, (C, E), strict=True)
    ]
    other: Any = clvm.ContrastiveLVM(1, 2).fit(
        X, background=B, covariates=dummies[0], background_covariates=dummies[1]
    )
    assert np.allclose(
        model.transform(X, covariates=C), other.transform(X, covariates=dummies[0]), atol=1e-4
    )
    assert np.allclose(12.0 * other.covariate_effects_.iloc[0], model.covariate_effects_.iloc[0])
    arrays: Any = clvm.ContrastiveLVM(1, 2).fit(
        X,
        background=B,
        covariates=dummies[0].to_numpy(float),
        background_covariates=dummies[1].to_numpy(float),
    )
    assert list(arrays.covariate_effects_.index) == ["c0", "c1", "c2"]
    assert np.array_equal(arrays.covariate_effects_, other.covariate_effects_)


@pytest.mark.parametrize("unit", [1e200, 1e-200])
def test_covariates_whose_squares_are_no_numbers(unit: float) -> None:
    X, B, C, E = sets()
    ages = [known[["age"]] for known in (C, E)]

    def latents(unit: float) -> Array:
        given: Any = [unit * known for known in ages]
        model = clvm.ContrastiveLVM(1, 2)
        model.fit(X, background=B, covariates=given[0], background_covariates=given[1])
        return model.transform(X, covariates=given[0])

    np.testing.assert_allclose(latents(unit), latents(1.0), atol=1e-6)


def test_parts_and_removal() -> None:
    X, _, C, _ = sets(missing=0.1)
    model = fitted(0.1)
    coded = np.column_stack([C["age"], C["sex"] == "male", C["sex"] == "other"]).astype(float)
    added = (coded - model.covariate_mean_.to_numpy()) @ model.covariate_effects_.to_numpy()
    parts = ("shared", "target")
    without = model.reconstruct(X, parts=parts, covariates=C)
    assert np.allclose(model.reconstruct(X, covariates=C), without + added)
    kept = model.denoise(X, covariates=C)
    removed = model.denoise(X, covariates=C, remove_covariates=True)
    assert np.allclose(kept, removed + added)
    mean = model.inverse_transform(np.zeros((1, 1)))
    assert np.allclose(mean, model.mean_)
    drawn = model.sample(len(C), covariates=C, random_state=0)
    zero = model.sample(
        len(C), covariates=C.assign(age=model.covariate_mean_["age"]), random_state=0
    )
    gap = np.outer(C["age"] - model.covariate_mean_["age"], model.covariate_effects_.loc["age"])
    assert np.allclose(drawn, zero + gap)


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_files_clones_and_rows_out_of_core(likelihood: str, tmp_path: Path) -> None:
    X, _, C, _ = sets()
    model = fitted(likelihood=likelihood, inference=clvm.EM(tol=0.01))
    model.save(tmp_path / "model.clvm")
    loaded = clvm.load_model(tmp_path / "model.clvm")
    expected = model.transform(X, covariates=C)
    assert np.array_equal(expected, loaded.transform(X, covariates=C))
    assert loaded.covariate_effects_.equals(model.covariate_effects_)
    with pytest.raises(InvalidDataError, match=r"'unknown'.* in 'sex'"):
        loaded.transform(X, covariates=C.assign(sex="unknown"))
    assert clone(model).get_params()["covariate_effects"] == "shared"
    np.save(tmp_path / "X.npy", X)
    there = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert np.allclose(model.transform(there, covariates=C), expected)
    array = pytest.importorskip("dask.array").from_array(X, chunks=(17, -1))
    scores = model.score_samples(array, covariates=C).compute()
    assert np.allclose(scores, model.score_samples(X, covariates=C))


def test_pipelines_route_covariates() -> None:
    X, B, C, E = sets()
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler(with_std=False)
        pipe = make_pipeline(scaler, clvm.ContrastiveLVM(1, 2))
        pipe.fit(X, background=B, covariates=C, background_covariates=E)
        found = pipe.transform(X, covariates=C)
    assert np.allclose(np.abs(found), np.abs(fitted().transform(X, covariates=C)), atol=1e-3)


def test_several_sets() -> None:
    X, B, C, E = sets()
    rows, known = np.vstack([X, B]), pd.concat([C, E], ignore_index=True)
    names, order = (
        np.repeat(["t", "u"], [len(X), len(B)]),
        np.random.default_rng(0).permutation(130),
    )
    model: Any = clvm.MultiSetLVM({"shared": 2, "t": clvm.Block(1, sets=["t"])})
    model.fit(rows[order], sets=names[order], covariates=known.iloc[order])
    two = fitted()
    assert model.lower_bound_ == pytest.approx(two.lower_bound_, abs=1e-3)
    assert np.allclose(model.covariate_effects_["t"], two.covariate_effects_, atol=1e-3)
    scores = model.score_samples(rows[order], sets=names[order], covariates=known.iloc[order])
    target = scores[names[order] == "t"]
    assert np.allclose(
        target, two.score_samples(X, covariates=C)[order[names[order] == "t"]], atol=1e-3
    )
    assert model.impute(rows, sets=names, covariates=known).shape == rows.shape
    with pytest.raises(InvalidDataError, match="fitted with"):
        model.transform(rows, sets=names)


WRONG: dict[str, tuple[Any, str]] = {
    "missing": (lambda C: C.assign(age=C["age"].where(C.index != 5)), "no value of 'age' in 1 row"),
    "no category": (lambda C: C.assign(sex=C["sex"].where(C.index > 2)), "no value of 'sex' in 3"),
    "infinite": (lambda C: C.assign(age=np.inf), "infinity in 'age'"),
    "constant": (lambda C: C.assign(one=1.0), "'one' that is the same in every row"),
    "one level": (lambda C: C.assign(one="a"), "'one' that is the same in every row"),
    "collinear": (lambda C: C.assign(double=2.0 * C["age"] + 1.0), "'double' that the sets and"),
    "date": (lambda C: C.assign(when=pd.Timestamp("2026-01-01")), "'when' of dtype datetime"),
    "length": (lambda C: C.iloc[1:], "has 59 rows, but there are 60"),
    "twice": (lambda C: pd.concat([C, C], axis=1), "name of its own"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_covariates_are_refused_by_name(case: str) -> None:
    X, B, C, E = sets()
    change, message = WRONG[case]
    other = E if case in ("missing", "no category", "length", "infinite") else change(E)
    with pytest.raises(InvalidDataError, match=message):
        clvm.ContrastiveLVM(1, 2).fit(
            X, background=B, covariates=change(C), background_covariates=other
        )


def test_covariates_that_sets_determine_or_that_are_not_there_are_refused() -> None:
    X, B, C, E = sets()
    model, batch = clvm.ContrastiveLVM(1, 2), C.assign(batch="one")
    with pytest.raises(InvalidDataError, match=r"'batch\[two\]' that the sets determine"):
        model.fit(X, background=B, covariates=batch, background_covariates=E.assign(batch="two"))
    with pytest.raises(InvalidDataError, match="background_covariates is None"):
        model.fit(X, background=B, covariates=C)
    with pytest.raises(InvalidDataError, match="has the columns"):
        model.fit(X, background=B, covariates=C, background_covariates=E[["age"]])
    own = clvm.ContrastiveLVM(1, 2, covariate_effects="own")
    E["sex"] = "male"
    with pytest.raises(InvalidDataError, match=r"'sex\[male\]' that in set 'background'"):
        own.fit(X, background=B, covariates=C, background_covariates=E)
    with pytest.raises(ValueError, match="covariate_effects='each'"):
        clvm.ContrastiveLVM(1, 2, covariate_effects="each").fit(X, background=B)
    fit = fitted()
    for method in ("transform", "latents", "reconstruct", "denoise", "impute", "score_samples"):
        with pytest.raises(InvalidDataError, match="was fitted with"):
            getattr(fit, method)(X)
    with pytest.raises(InvalidDataError, match="was fitted with"):
        fit.sample(3)
    with pytest.raises(InvalidDataError, match="text in 'age', which has numbers"):
        fit.transform(X, covariates=C.astype(str))
    plain = model.fit(X, background=B)
    with pytest.raises(InvalidDataError, match="fitted without"):
        plain.transform(X, covariates=C)


def test_weights_of_rows() -> None:
    X, B, C, E = sets()
    times = np.random.default_rng(0).integers(0, 3, len(X))
    weighted: Any = clvm.ContrastiveLVM(1, 2).fit(
        X, background=B, covariates=C, background_covariates=E, sample_weight=times
    )
    repeated: Any = clvm.ContrastiveLVM(1, 2).fit(
        np.repeat(X, times, axis=0),
        background=B,
        covariates=C.loc[C.index.repeat(times)],
        background_covariates=E,
    )
    assert np.allclose(weighted.covariate_effects_, repeated.covariate_effects_, atol=1e-4)
    assert np.allclose(weighted.mean_, repeated.mean_, atol=1e-4)


def test_subgroups_of_rows_with_covariates() -> None:
    X, _, C, _ = sets(200)
    X[:100] += 4.0 * np.random.default_rng(1).normal(size=(3, D))[2]
    B, E = rows_of(people(150, 2), 4, target=False), people(150, 2)
    model = clvm.ContrastiveLVM(1, 2, latent_prior=clvm.Mixture(2))
    model.fit(X, background=B, covariates=C, background_covariates=E)
    found = model.subgroups(X, covariates=C)
    first = np.repeat([True, False], 100)
    assert max(np.mean(found.labels[first] == i) for i in (0, 1)) > 0.8
    total = model.score_samples(X, covariates=C).sum()
    total += model.score_samples(B, of="background", covariates=E).sum()
    assert model.lower_bound_ == pytest.approx(total, rel=1e-8)
