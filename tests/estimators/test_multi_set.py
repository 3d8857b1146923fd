"""`MultiSetLVM`: any number of sets, against brute force and against `ContrastiveLVM`."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import contrastive_lvm as clvm
from contrastive_lvm import Block
from contrastive_lvm.estimators.row_sets import coded_labels
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError

SETS = ("a", "b", "c")


@pytest.fixture(scope="module")
def data() -> Any:
    return clvm.datasets.make_multi_set(n_rows=[60, 50, 70], n_features=12, random_state=1)


def blocks() -> dict[str, Any]:
    return {"shared": 3, "b+c": Block(1, sets=["b", "c"]), "c": Block(1, sets=["c"])}


@pytest.fixture(scope="module")
def fitted(data: Any) -> clvm.MultiSetLVM:
    return clvm.MultiSetLVM(blocks()).fit(data.rows, sets=data.sets)


# --- brute force --------------------------------------------------------------------------------


def random_design(rng: np.random.Generator) -> tuple[dict[str, Block], tuple[str, ...]]:
    """Some of all choices of two to four sets, every set at least once."""
    names = SETS[: rng.integers(2, 4)] if rng.random() < 0.7 else ("a", "b", "c", "d")
    patterns = clvm.designs.all_patterns(names, 1)
    chosen = rng.choice(
        list(patterns), size=rng.integers(1, min(5, len(patterns) + 1)), replace=False
    )
    found = {name: Block(int(rng.integers(1, 3)), patterns[name].sets) for name in chosen}
    missing = set(names) - {s for block in found.values() for s in block.sets or ()}
    return found | {name: Block(1, (name,)) for name in sorted(missing)}, names


@pytest.mark.parametrize("seed", range(10))
def test_predictions_are_those_of_the_joint_normal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    design, names = random_design(rng)
    d = 9
    sets = rng.permutation(np.repeat(names, 25))
    X = rng.standard_normal((len(sets), 3)) @ rng.standard_normal((3, d))
    X += rng.standard_normal(X.shape) * np.where(sets == "b", 1.5, 1.0)[:, None]
    X[rng.random(X.shape) < 0.15] = np.nan
    noise = clvm.Gaussian("feature" if rng.integers(2) else "isotropic", "own")
    few = clvm.EM(max_iter=5)  # before the noise of any feature vanishes
    effects = str(rng.choice(["shared", "own"]))
    model = clvm.MultiSetLVM(design, likelihood=noise, covariate_effects=effects, inference=few)
    known = pd.DataFrame({"age": rng.normal(50.0, 9.0, len(sets)), "male": rng.random(len(sets))})
    given: dict[str, Any] = {"sets": sets, "covariates": known}
    with pytest.warns(UserWarning, match="max_iter"):
        model.fit(X, **given)
    scores = model.score_samples(X, **given)
    latents = model.latents(X, **given)
    filled, std = model.impute(X, return_std=True, **given)
    assert model.covariate_effects_ is not None
    assert model.covariate_mean_ is not None
    moved = known - model.covariate_mean_
    for i, (x, name) in enumerate(zip(X, sets, strict=True)):
        active = [b for b, block in model.blocks_.items() if name in (block.sets or ())]
        L = np.vstack([model.components_[b] for b in active]).T
        psi = np.broadcast_to(model.noise_variance_[name], d)
        joint = L @ L.T + np.diag(psi)
        seen = ~np.isnan(x)
        center = model.mean_[name] + moved.iloc[i] @ model.covariate_effects_[name].to_numpy()
        r = x[seen] - center[seen]
        inverse = np.linalg.inv(joint[np.ix_(seen, seen)])
        logdet = np.linalg.slogdet(2 * np.pi * joint[np.ix_(seen, seen)])[1]
        assert scores[i] == pytest.approx(-0.5 * (logdet + r @ inverse @ r), rel=1e-10)
        gain = L[seen].T @ inverse
        spread = np.sqrt(np.diag(np.eye(L.shape[1]) - gain @ L[seen]))
        mean = np.hstack([latents.mean[b][i] for b in active])
        np.testing.assert_allclose(mean, gain @ r, rtol=1e-10, atol=1e-10)
        own = np.hstack([latents.std[b][i] for b in active])
        np.testing.assert_allclose(own, spread, rtol=1e-10, atol=1e-10)
        rest = ~seen
        weights = joint[np.ix_(rest, seen)] @ inverse
        expected = center[rest] + weights @ r
        variance = np.diag(joint[np.ix_(rest, rest)] - weights @ joint[np.ix_(seen, rest)])
        np.testing.assert_allclose(filled[i, rest], expected, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(std[i, rest], np.sqrt(variance), rtol=1e-10, atol=1e-10)
    assert scores.sum() == pytest.approx(model.lower_bound_, rel=1e-10)


# --- special cases ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "likelihood", [clvm.Gaussian(), clvm.Gaussian("feature", "own"), "student_t"]
)
def test_two_sets_are_the_contrastive_model(likelihood: Any) -> None:
    data = clvm.datasets.make_subgroups(60, 50, random_state=0)
    X, B = data.target, data.background
    X[::7, 3] = np.nan
    one = clvm.ContrastiveLVM(2, 3, likelihood=likelihood).fit(X, background=B)
    design: Any = {"shared": 3, "target": Block(2, sets=["target"])}
    sets = np.repeat(["target", "background"], [len(X), len(B)])
    model = clvm.MultiSetLVM(design, likelihood=likelihood).fit(np.vstack([X, B]), sets=sets)
    assert model.lower_bound_ == pytest.approx(one.lower_bound_, rel=1e-6)
    np.testing.assert_allclose(model.transform(X, sets="target"), one.transform(X), atol=0.02)


def test_one_set_is_probabilistic_pca(data: Any) -> None:
    X = data.rows[data.sets == "a"]
    model = clvm.MultiSetLVM({"all": 2}).fit(X, sets=["a"] * len(X))
    ppca = clvm.PPCA(2).fit(X)
    assert model.lower_bound_ == pytest.approx(ppca.lower_bound_, rel=1e-8)
    np.testing.assert_allclose(model.transform(X, sets="a"), ppca.transform(X), atol=1e-3)


# --- rows of every kind -------------------------------------------------------------------------


def same(model: clvm.MultiSetLVM, other: clvm.MultiSetLVM) -> None:
    assert other.lower_bound_ == pytest.approx(model.lower_bound_, rel=1e-8)
    for name in model.components_:
        one, two = (m.components_[name] for m in (model, other))
        np.testing.assert_allclose(one.T @ one, two.T @ two, atol=1e-3)


def test_the_order_of_rows_does_not_matter(data: Any, fitted: clvm.MultiSetLVM) -> None:
    order = np.random.default_rng(0).permutation(len(data.rows))
    other = clvm.MultiSetLVM(blocks()).fit(data.rows[order], sets=data.sets[order])
    same(fitted, other)
    here = fitted.transform(data.rows, sets=data.sets)
    np.testing.assert_allclose(
        fitted.transform(data.rows[order], sets=data.sets[order]), here[order], atol=1e-12
    )


def test_frames_sparse_matrices_and_files(
    data: Any, fitted: clvm.MultiSetLVM, tmp_path: Path
) -> None:
    import polars as pl

    X, sets = data.rows, data.sets
    mapped = np.lib.format.open_memmap(tmp_path / "X.npy", "w+", X.dtype, X.shape)
    mapped[:] = X
    names = [f"f{i}" for i in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    for rows in (frame, pl.DataFrame(X, schema=names), sp.csr_array(X), mapped):
        model = clvm.MultiSetLVM(blocks()).fit(rows, sets=pd.Series(sets, dtype="category"))
        same(fitted, model)
        expected = fitted.transform(X, sets=sets)
        np.testing.assert_allclose(model.transform(rows, sets=sets), expected, atol=1e-3)
    model.set_output(transform="pandas")
    framed: Any = model.transform(X, sets=sets)
    assert list(framed.columns) == ["b+c0", "c0"]


def test_dask(data: Any, fitted: clvm.MultiSetLVM) -> None:
    da = pytest.importorskip("dask.array")
    order = np.random.default_rng(0).permutation(len(data.rows))
    lazy, sets = da.from_array(data.rows[order], chunks=(37, -1)), data.sets[order]
    model = clvm.MultiSetLVM(blocks()).fit(lazy, sets=sets)
    same(fitted, model)
    expected = model.transform(data.rows[order], sets=sets)
    found: Any = model.transform(lazy, sets=sets)
    np.testing.assert_allclose(found.compute(), expected, atol=1e-10)
    means = model.latents(lazy, sets=sets).mean["c"]
    np.testing.assert_allclose(means, model.latents(data.rows[order], sets=sets).mean["c"])


def test_weights_are_repetitions(data: Any) -> None:
    rng = np.random.default_rng(0)
    weights = rng.integers(1, 3, len(data.rows)).astype(float)
    weighted = clvm.MultiSetLVM(blocks()).fit(data.rows, sets=data.sets, sample_weight=weights)
    n = weights.astype(int)
    repeated = clvm.MultiSetLVM(blocks()).fit(
        np.repeat(data.rows, n, 0), sets=np.repeat(data.sets, n)
    )
    same(repeated, weighted)


@pytest.mark.parametrize(
    ("likelihood", "prior"),
    [
        ("student_t", None),
        ("gaussian", "ard"),
        ("gaussian", "group_lasso"),
        ("gaussian", "horseshoe"),
        (clvm.StudentT(per="sample", sets="own"), "ard"),
    ],
)
def test_likelihoods_and_priors(data: Any, likelihood: Any, prior: Any) -> None:
    X = data.rows.copy()
    X[::9, 2] = np.nan
    design: Any = {"shared": 3, "b+c": Block(1, sets=["b", "c"], prior=prior)}
    model = clvm.MultiSetLVM(design, likelihood=likelihood).fit(X, sets=data.sets)
    assert not np.isnan(model.impute(X, sets=data.sets)).any()
    truth = data.loadings["b+c"][:, 0]
    found = model.components_["b+c"][0]
    assert abs(np.corrcoef(truth, found)[0, 1]) > 0.7


@pytest.mark.slow  # compiles for half a minute
def test_counts(data: Any) -> None:
    rng = np.random.default_rng(0)
    X = rng.poisson(np.exp(0.3 * data.rows))
    model = clvm.MultiSetLVM(
        {"shared": 2, "c": Block(1, sets=["c"])},
        likelihood="poisson",
        inference=clvm.SVI(max_iter=200, tol=1e9),
        random_state=0,
    )
    with pytest.warns(UserWarning, match="max_iter"):
        model.fit(X, sets=data.sets)
    assert model.transform(X, sets=data.sets).shape == (len(X), 1)
    assert model.sample(4, sets="c", random_state=0).shape == (4, 12)


# --- methods ------------------------------------------------------------------------------------


def test_parts_add_up(data: Any, fitted: clvm.MultiSetLVM) -> None:
    X, sets = data.rows, data.sets
    parts = [fitted.reconstruct(X, sets=sets, blocks=[b]) for b in fitted.blocks_]
    mean = np.stack([fitted.mean_[s] for s in sets])
    whole = mean + sum(part - mean for part in parts)
    np.testing.assert_allclose(fitted.reconstruct(X, sets=sets), whole, atol=1e-10)
    rest = fitted.denoise(X, sets=sets)
    shared = fitted.latents(X, sets=sets).mean["shared"] @ fitted.components_["shared"]
    np.testing.assert_allclose(rest, X - shared, atol=1e-10)
    everything = fitted.denoise(X, sets=sets, remove=list(fitted.blocks_))
    np.testing.assert_allclose(everything, X - (whole - mean), atol=1e-10)


def test_inactive_blocks_are_zero_or_nan(data: Any, fitted: clvm.MultiSetLVM) -> None:
    a = data.sets == "a"
    latents = fitted.latents(data.rows, sets=data.sets)
    assert np.isnan(latents.mean["b+c"][a]).all()
    assert np.isnan(latents.std["c"][a]).all()
    assert np.isfinite(latents.mean["b+c"][~a]).all()
    found = fitted.transform(data.rows, sets=data.sets)
    assert (found[a] == 0).all()
    assert found[~a].any()
    back = fitted.inverse_transform(found, sets=data.sets)
    expected = fitted.reconstruct(data.rows, sets=data.sets, blocks=["b+c", "c"])
    np.testing.assert_allclose(back, expected, atol=1e-10)


def test_samples_have_the_model_s_covariance(fitted: clvm.MultiSetLVM) -> None:
    drawn = fitted.sample(40_000, sets="b", random_state=0)
    L = np.vstack([fitted.components_["shared"], fitted.components_["b+c"]])
    expected = L.T @ L + fitted.noise_variance_["b"] * np.eye(12)
    np.testing.assert_allclose(np.cov(drawn.T), expected, atol=0.03 * np.trace(expected))
    only = fitted.sample(5, sets=["a", "b", "c", "c", "a"], blocks=[], random_state=0)
    assert only.shape == (5, 12)


def test_shares_and_activity(fitted: clvm.MultiSetLVM) -> None:
    assert fitted.activity_.to_numpy().tolist() == [[3, 0, 0], [3, 1, 0], [3, 1, 1]]
    np.testing.assert_allclose(fitted.variance_ratio_.sum(axis=1), 1.0)
    assert fitted.variance_ratio_.loc["a", "c"] == 0


def test_a_saved_model_is_the_same(data: Any, fitted: clvm.MultiSetLVM, tmp_path: Path) -> None:
    fitted.save(tmp_path / "m.clvm")
    loaded = clvm.load_model(tmp_path / "m.clvm")
    assert loaded.blocks_ == fitted.blocks_
    assert loaded.set_sizes_ == fitted.set_sizes_
    one, two = (m.transform(data.rows, sets=data.sets) for m in (fitted, loaded))
    np.testing.assert_array_equal(one, two)
    pd.testing.assert_frame_equal(loaded.variance_ratio_, fitted.variance_ratio_)


def test_a_forged_design_is_refused(fitted: clvm.MultiSetLVM, tmp_path: Path) -> None:
    forged = clone(fitted)
    vars(forged).update(vars(fitted))
    forged.blocks = {"shared": 3, "b+c": Block(1, sets=["a", "b"]), "c": Block(1, sets=["c"])}
    with pytest.raises(ValueError, match="not those of its parameters"):
        forged.save(tmp_path / "m.clvm")


def test_pipelines_route_the_sets(data: Any) -> None:
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        pipe = make_pipeline(StandardScaler(), clvm.MultiSetLVM(blocks()))
        pipe.fit(data.rows, sets=data.sets)
        assert pipe.transform(data.rows, sets=data.sets).shape == (len(data.rows), 2)
        assert np.isfinite(pipe.score(data.rows, sets=data.sets))


def test_the_card_names_blocks(fitted: clvm.MultiSetLVM) -> None:
    card: Any = fitted._repr_html_()
    assert "180 rows of 3 sets" in card
    assert "b+c 1" in card


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": Block(1, sets=["a"]), "y": Block(1, sets=["a"]), "s": 1}, "same sets as"),
        ({"s": 1, "t": 2}, "same sets as"),
        ({"s": Block(1, sets=["a", "zebra"]), "t": 1}, "sets without rows, \\['zebra'\\]"),
        ({"s": Block(2, sets=["a", "b"])}, "no dimension for set 'c'"),
        ({"s": 2.5}, "must be a number of dimensions"),
        ({"s": -1}, "must be a number of dimensions"),
        ({"s": 12}, "12 dimensions for 12 feature"),
        ({"noise": 2}, "named 'noise'"),
        ({"": 2}, "named ''"),
        ({}, "must name blocks"),
        (3, "must name blocks"),
    ],
)
def test_designs_that_make_no_sense(data: Any, given: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        clvm.MultiSetLVM(given).fit(data.rows, sets=data.sets)


def test_blocks_that_make_no_sense() -> None:
    for sets, message in ([], "active nowhere"), (["a", "a"], "twice"), ("ab", "list names"):
        with pytest.raises(InvalidParameterError, match=message):
            Block(1, sets=sets)


def test_fewer_rows_than_columns() -> None:
    X = np.random.default_rng(0).standard_normal((14, 20))
    sets = ["a"] * 10 + ["b"] * 4
    design: Any = {"shared": 2, "b": Block(3, sets=["b"])}
    with pytest.raises(InvalidParameterError, match="fewer than 3, the number of their rows"):
        clvm.MultiSetLVM(design).fit(X, sets=sets)


def test_labels_that_make_no_sense(data: Any, fitted: clvm.MultiSetLVM) -> None:
    X, sets = data.rows, data.sets.astype(object)
    model = clvm.MultiSetLVM(blocks())
    for wrong, message in (
        (sets[:-1], "one label per row"),
        (None, "one label per row"),
        (np.where(sets == "a", None, sets), "names no set for row 0"),
        (np.where(np.arange(len(sets)) == 0, "d", sets), "at least 2"),
    ):
        with pytest.raises(InvalidDataError, match=message):
            model.fit(X, sets=wrong)
    assert not hasattr(model, "components_")
    with pytest.raises(InvalidDataError, match="was fitted to"):
        fitted.transform(X, sets="zebra")
    with pytest.raises(InvalidParameterError, match="remove='zebra' is unknown"):
        fitted.denoise(X, sets=data.sets, remove="zebra")
    empty = X.copy()
    empty[data.sets == "b", 4] = np.nan
    with pytest.raises(InvalidDataError, match="set 'b' has no observed entry in columns"):
        model.fit(empty, sets=data.sets)


def test_labels_in_runs_are_the_labels_of_the_rows() -> None:
    labels = np.repeat(["b", "a", "b", "c"], [3, 1, 2, 4])
    codes, names = coded_labels(labels, 10)
    np.testing.assert_array_equal(np.array(names)[codes], labels)
    same, _ = coded_labels(labels.astype(object), 10)
    np.testing.assert_array_equal(codes, same)
    with pytest.raises(InvalidDataError, match="label per row"):
        coded_labels(labels[:, None], 10)


def test_numbers_as_sets(data: Any) -> None:
    numbers = np.searchsorted(SETS, data.sets)
    model = clvm.MultiSetLVM({"shared": 2, "two": Block(1, sets=[2])})  # type: ignore[list-item]
    model.fit(data.rows, sets=numbers)
    assert list(model.mean_) == ["0", "1", "2"]
    assert model.transform(data.rows, sets=numbers)[numbers == 2].any()
