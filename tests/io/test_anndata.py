"""AnnData: two groups in, latents and loadings where scanpy looks for them."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import contrastive_lvm as clvm
from contrastive_lvm import anndata as adapter
from contrastive_lvm.anndata import write_results

anndata = pytest.importorskip("anndata", reason="the extra anndata is not installed")

DATA = clvm.datasets.make_contrastive(60, 50, n_features=8, n_shared=2, random_state=0)
GENES = [f"gene{i}" for i in range(8)]
CONDITIONS = np.array(["stim", "ctrl", None, "other"], dtype=object)
ORDER = np.random.default_rng(0).permutation(np.repeat([0, 1, 2, 3], [60, 50, 5, 10]))
WORDS: dict[str, Any] = {"groupby": "condition", "target": "stim", "background": "ctrl"}


def values() -> np.ndarray:
    """Rows in the order of their conditions, mixed."""
    rng = np.random.default_rng(1)
    rows = np.empty((len(ORDER), 8))
    rows[ORDER == 0], rows[ORDER == 1] = DATA.target, DATA.background
    rows[ORDER > 1] = rng.standard_normal((15, 8))
    return rows


def cells(X: Any = None, kind: Any = "category") -> Any:
    index = [f"cell{i}" for i in range(len(ORDER))]
    obs = pd.DataFrame({"condition": pd.Series(CONDITIONS[ORDER], index, dtype=kind)})
    var = pd.DataFrame(index=pd.Index(GENES))
    return anndata.AnnData(values() if X is None else X, obs=obs, var=var)


def model() -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(2, 2, inference=clvm.EM(tol=0.01))


def rare(X: np.ndarray) -> np.ndarray:
    return np.where(X > 0.5, X, 0.0)


@pytest.mark.parametrize("kind", ["category", "object", "string"])
def test_what_is_written(kind: str) -> None:
    adata, estimator = cells(kind=kind), model()
    assert adapter.fit(adata, estimator, **WORDS) is estimator
    plain = model().fit(DATA.target, background=DATA.background)
    np.testing.assert_allclose(estimator.target_components_, plain.target_components_)
    assert list(estimator.feature_names_in_) == GENES
    np.testing.assert_array_equal(adata.varm["clvm_target_loadings"].T, plain.target_components_)
    np.testing.assert_array_equal(adata.varm["clvm_shared_loadings"].T, plain.shared_components_)
    latents, others = plain.latents(values()), plain.latents(values(), of="background")
    np.testing.assert_allclose(adata.obsm["X_clvm_target"], plain.transform(values()), atol=1e-9)
    control = (ORDER == 1)[:, None]
    expected = np.where(control, others.shared, latents.shared)
    np.testing.assert_allclose(adata.obsm["X_clvm_shared"], expected, atol=1e-9)
    assert np.isfinite(adata.obsm["X_clvm_target"]).all()  # scanpy's neighbours refuse NaN
    about = adata.uns["clvm"]
    assert about["lower_bound"] == estimator.lower_bound_
    assert list(about["target"]) == ["stim"]
    shares = [about[f"{part}_variance_ratio"] for part in ("target", "shared", "noise")]
    assert np.isclose(sum(np.sum(share) for share in shares), 1.0)


def test_lists_of_groups_and_other_keys() -> None:
    adata = cells()
    words = {**WORDS, "target": ["stim", "other"], "key_added": "two"}
    adapter.fit(adata, model(), **words)
    assert sorted(adata.obsm) == ["X_two_shared", "X_two_target"]
    assert sorted(adata.varm) == ["two_shared_loadings", "two_target_loadings"]
    assert list(adata.uns["two"]["target"]) == ["stim", "other"]
    joined = np.isin(ORDER, [0, 3])
    expected = model().fit(values()[joined], background=DATA.background)
    np.testing.assert_allclose(adata.uns["two"]["lower_bound"], expected.lower_bound_)


def test_replicates_are_a_column() -> None:
    adata = cells()
    donors = np.array([f"{condition}{i % 6}" for i, condition in enumerate(ORDER)])
    adata.obs["donor"] = pd.Categorical(donors)
    estimator = clvm.ContrastiveLVM("auto", 2, random_state=0)
    adapter.fit(adata, estimator, **WORDS, replicates="donor")
    assert adata.uns["clvm"]["replicates"] == "donor"
    target, control = (np.flatnonzero(ORDER == group) for group in (0, 1))
    plain = clvm.ContrastiveLVM("auto", 2, random_state=0).fit(
        values()[target],
        background=values()[control],
        groups=donors[target],
        background_groups=donors[control],
    )
    assert estimator.n_target_ == plain.n_target_
    assert estimator.lower_bound_ == plain.lower_bound_
    adata.obs["donor"] = "one"
    with pytest.raises(ValueError, match="replicate"):
        adapter.fit(adata, clvm.ContrastiveLVM("auto", 2), **WORDS, replicates="donor")


def test_replicates_that_cannot_be_used() -> None:
    adata = cells()
    adata = adata[np.argsort(ORDER, kind="stable")].copy()
    adata.obs["part"] = [None] + ["a"] * (len(ORDER) - 1)
    with pytest.raises(ValueError, match="replicates='who' is not a column"):
        adapter.fit(adata, model(), **WORDS, replicates="who")
    with pytest.raises(ValueError, match="replicates='part' is empty for observation 'cell"):
        adapter.fit(adata, model(), **WORDS, replicates="part")
    with pytest.raises(ValueError, match="but the fit of PPCA does not"):
        adapter.fit(adata, clvm.PPCA(2), **WORDS, replicates="part")


@pytest.mark.parametrize("groups", [("yes", "no"), (1, 0), (True, False)])
def test_groups_of_any_kind(groups: Any) -> None:
    adata = cells()
    adata = adata[np.isin(ORDER, [0, 1])].copy()
    adata.obs["flag"] = np.where(adata.obs["condition"] == "stim", *np.array(groups))
    adapter.fit(adata, model(), groupby="flag", target=groups[0], background=groups[1])
    assert adata.uns["clvm"]["converged"]


def test_estimators_without_a_shared_part_write_what_they_have() -> None:
    adata = cells()
    adapter.fit(adata, model(), **WORDS)
    for estimator in (clvm.PPCA(3), clvm.ContrastivePCA(3, alpha=1.0)):
        adapter.fit(adata, estimator, **WORDS)
        assert list(adata.obsm) == ["X_clvm_target"]  # nothing of the model before is left
        np.testing.assert_array_equal(adata.varm["clvm_target_loadings"], estimator.components_.T)
        assert list(adata.varm) == ["clvm_target_loadings"]
        expected = type(estimator)(**estimator.get_params())
        words = {} if isinstance(estimator, clvm.PPCA) else {"background": DATA.background}
        expected.fit(DATA.target, **words)
        np.testing.assert_allclose(adata.obsm["X_clvm_target"], expected.transform(values()))
    adapter.fit(adata, clvm.ContrastiveLVM(2, 0), groupby="condition", target="stim")
    assert list(adata.obsm) == ["X_clvm_target"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ContrastiveVAE", "VAE"])
def test_networks(name: str) -> None:
    pytest.importorskip("jax", reason="the extra jax is not installed")
    words: dict[str, Any] = {
        "hidden_layer_sizes": (4,),
        "max_epochs": 2,
        "refine_steps": 0,
        "random_state": 0,
    }
    sizes = (2, 2) if name == "ContrastiveVAE" else (2,)
    adata = cells()
    adapter.fit(adata, getattr(clvm, name)(*sizes, **words), **WORDS)
    assert adata.obsm["X_clvm_target"].shape == (125, 2)
    assert ("X_clvm_shared" in adata.obsm) == (name == "ContrastiveVAE")
    assert not len(adata.varm)


# Where values come from


def spied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Entries that are made dense together, in every way that SciPy has."""
    seen = [0]
    for kind in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array):
        for name in ("toarray", "todense"):
            old = getattr(kind, name)

            def spy(self: Any, *a: Any, _old: Any = old, **k: Any) -> Any:
                seen.append(self.shape[0] * self.shape[1])
                return _old(self, *a, **k)

            monkeypatch.setattr(kind, name, spy)
    return seen


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_sparse_values_stay_sparse(form: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X = sp.random_array((125, 20_000), density=1e-3, format=form, random_state=0)
    adata = anndata.AnnData(X, obs=cells().obs)
    seen = spied(monkeypatch)
    adapter.fit(adata, clvm.ContrastiveLVM(1, 1, inference=clvm.EM(tol=1.0)), **WORDS)
    assert sp.issparse(adata.X)
    assert max(seen) < 125 * 20_000 // 4
    assert adata.obsm["X_clvm_target"].shape == (125, 1)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix, sp.csr_array])
def test_sparse_values_say_what_dense_ones_do(form: Any) -> None:
    adata, dense = cells(form(rare(values()))), cells(rare(values()))
    for one in (adata, dense):
        adapter.fit(one, model(), **WORDS)
    for name in ("X_clvm_target", "X_clvm_shared"):
        np.testing.assert_allclose(adata.obsm[name], dense.obsm[name], atol=1e-6)


def test_layers_are_taken_by_name() -> None:
    adata = cells()
    adata.layers["rare"] = sp.csr_matrix(rare(values()))
    adapter.fit(adata, model(), **WORDS, layer="rare")
    sets = rare(DATA.target), rare(DATA.background)
    expected = model().fit(sets[0], background=sets[1])
    np.testing.assert_allclose(adata.uns["clvm"]["lower_bound"], expected.lower_bound_)
    assert adata.uns["clvm"]["layer"] == "rare"


def test_missing_entries_and_whole_numbers() -> None:
    gappy = values()
    gappy[0, 0] = np.nan
    adata = cells(gappy)
    adapter.fit(adata, model(), **WORDS)
    assert np.isfinite(adata.obsm["X_clvm_target"]).all()
    adata = cells(np.round(values()).astype(np.int32))
    adapter.fit(adata, model(), **WORDS)
    assert adata.X.dtype == np.int32


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_backed_files(form: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cells.h5ad"
    cells(form(rare(values()))).write_h5ad(path)
    monkeypatch.setattr(write_results, "ENTRIES", 8 * 20)  # many blocks
    backed = anndata.read_h5ad(path, backed="r")
    adapter.fit(backed, model(), **WORDS)
    assert backed.isbacked
    held = cells(form(rare(values())))
    adapter.fit(held, model(), **WORDS)
    np.testing.assert_allclose(backed.obsm["X_clvm_target"], held.obsm["X_clvm_target"], atol=1e-6)
    with pytest.raises(ValueError, match=r"is a view of a backed file.*adata\.to_memory\(\)"):
        adapter.fit(backed[:100], model(), **WORDS)
    backed.file.close()


@pytest.mark.filterwarnings("ignore:.*initializing view as actual", "ignore:The noise of some")
def test_views_become_copies() -> None:
    whole = cells()
    part = whole[ORDER < 2, ["gene1", "gene0", "gene4", "gene7", "gene5"]]
    estimator = adapter.fit(part, clvm.ContrastiveLVM(1, 1), **WORDS)
    assert list(estimator.feature_names_in_) == ["gene1", "gene0", "gene4", "gene7", "gene5"]
    assert part.obsm["X_clvm_target"].shape == (110, 1)
    assert not len(whole.obsm)


def test_dask_arrays() -> None:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    adata = cells(da.from_array(values(), chunks=(30, 8)))
    adapter.fit(adata, model(), **WORDS)
    held = cells()
    adapter.fit(held, model(), **WORDS)
    np.testing.assert_allclose(adata.obsm["X_clvm_target"], held.obsm["X_clvm_target"])


def test_files_hold_all_of_it(tmp_path: Path) -> None:
    adata, path = cells(), tmp_path / "cells.h5ad"
    prior = clvm.GroupLasso(0.1, groups={"g": ["gene0", "gene3"]})
    adapter.fit(adata, clvm.ContrastiveLVM(2, 2, target_prior=prior), **WORDS)
    adapter.fit(adata, clvm.PPCA(2), groupby="condition", target=["stim"], key_added="pca")
    adata.write_h5ad(path)
    again = anndata.read_h5ad(path)
    for place in ("obsm", "varm"):
        assert sorted(getattr(again, place)) == sorted(getattr(adata, place))
        for name, array in getattr(adata, place).items():
            np.testing.assert_array_equal(getattr(again, place)[name], array)
    for key in ("clvm", "pca"):
        assert again.uns[key].keys() == adata.uns[key].keys()
        for name in ("lower_bound", "estimator", "parameters"):
            assert again.uns[key][name] == adata.uns[key][name]
        assert list(again.uns[key]["target"]) == ["stim"]
    assert list(again.uns["pca"]["background"]) == []
    adapter.fit(again, model(), **WORDS)
    assert again.uns["clvm"]["parameters"]["target_prior"] == "None"


def test_models_travel_with_the_names_of_genes(tmp_path: Path) -> None:
    adata = cells(sp.csr_matrix(rare(values())))
    adapter.fit(adata, model(), **WORDS).save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    assert list(again.feature_names_in_) == GENES
    frame = pd.DataFrame(rare(DATA.target), columns=GENES)
    np.testing.assert_allclose(
        again.transform(frame), adata.obsm["X_clvm_target"][ORDER == 0], atol=1e-6
    )


def test_frames_that_were_asked_for_are_no_obstacle() -> None:
    adata = cells()
    adapter.fit(adata, model().set_output(transform="pandas"), **WORDS)
    assert type(adata.obsm["X_clvm_target"]) is np.ndarray


# Errors


def broken(**changes: Any) -> Any:
    adata = cells()
    for name, value in changes.items():
        setattr(adata, name, value)
    return adata


REFUSED: dict[str, tuple[Any, dict[str, Any], type[Exception], str]] = {
    "no AnnData": (np.ones((3, 3)), {}, TypeError, r"adata is of type ndarray, not AnnData"),
    "column": (
        None,
        {"groupby": "state"},
        ValueError,
        r"groupby='state' is not a column of adata\.obs; it has 'condition'\.",
    ),
    "group": (
        None,
        {"target": "stimulated"},
        ValueError,
        r"target='stimulated' has 'stimulated', which is not a value of .*it has ('\w+'(, )?){3}",
    ),
    "one of several": (
        None,
        {"background": ["ctrl", "none"]},
        ValueError,
        r"background=\['ctrl', 'none'\] has 'none', which is not a value",
    ),
    "missing": (None, {"target": [np.nan]}, ValueError, r"has nan, which is not a value"),
    "no group": (None, {"target": []}, ValueError, r"target=\[\] names no group"),
    "overlap": (
        None,
        {"background": ["ctrl", "stim"]},
        ValueError,
        r"target='stim' and background=\['ctrl', 'stim'\] both have 'stim'",
    ),
    "layer": (
        None,
        {"layer": "raw"},
        ValueError,
        r"layer='raw' is not in adata.layers; it",
    ),
    "no X": (broken(X=None), {}, ValueError, r"adata has no matrix X; name one of its layers"),
    "names": (
        broken(var_names=["a", "a", *"bcdefg"]),
        {},
        ValueError,
        r"adata\.var_names has 'a' more than once; call adata\.var_names_make_unique",
    ),
    "key": (None, {"key_added": "a/b"}, ValueError, r"key_added='a/b' must be a word without '/'"),
    "no background": (None, {"background": None}, ValueError, r"background=None, but n_shared=2"),
}


@pytest.mark.filterwarnings("ignore:Variable names are not unique")
@pytest.mark.parametrize("case", REFUSED)
def test_refused_in_one_sentence(case: str) -> None:
    adata, words, kind, pattern = REFUSED[case]
    with pytest.raises(kind, match=pattern) as caught:
        adapter.fit(cells() if adata is None else adata, model(), **{**WORDS, **words})
    message = str(caught.value)
    assert message.endswith(".")
    assert "\n" not in message


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    adata = cells()
    monkeypatch.setitem(sys.modules, "anndata", None)
    with pytest.raises(ImportError, match=r"pip install 'contrastive-lvm\[anndata\]'\."):
        adapter.fit(adata, model(), **WORDS)


def test_nothing_is_written_when_a_fit_fails() -> None:
    adata = cells()
    with pytest.raises(ValueError, match="n_target=9"):
        adapter.fit(adata, clvm.ContrastiveLVM(9, 2), **WORDS)
    assert not len(adata.obsm)
    assert not adata.uns


@pytest.mark.filterwarnings("ignore")  # its own, about the packages it uses
def test_scanpy_finds_everything() -> None:
    sc = pytest.importorskip("scanpy", reason="scanpy is no development tool: it is large")
    adata = cells()
    adapter.fit(adata, model(), **WORDS)
    sc.pp.neighbors(adata, use_rep="X_clvm_target", n_neighbors=10)
    assert adata.obsp["connectivities"].shape == (125, 125)
    axes = sc.pl.embedding(adata, basis="clvm_target", color="condition", show=False)
    assert len(axes.collections) > 0
    sc.pl.embedding(adata, basis="clvm_shared", color="gene0", show=False)


def test_columns_of_obs_are_covariates() -> None:
    adata = cells()
    rng = np.random.default_rng(0)
    adata.obs["age"] = rng.normal(size=len(adata)) + 40.0
    adata.obs["batch"] = pd.Categorical(rng.choice(["one", "two"], len(adata)))
    outside = ~adata.obs["condition"].isin(["stim", "ctrl"]).to_numpy()
    if outside.any():
        adata.obs.loc[adata.obs_names[outside], "age"] = np.nan
    words = {"groupby": "condition", "target": "stim", "background": "ctrl"}
    model = clvm.anndata.fit(adata, clvm.ContrastiveLVM(1, 1), **words, covariates=["age", "batch"])
    assert list(model.covariate_effects_.index) == ["age", "batch[two]"]
    target = adata[adata.obs["condition"] == "stim"]
    alone = model.transform(
        pd.DataFrame(target.X, columns=target.var_names), covariates=target.obs[["age", "batch"]]
    )
    written = adata.obsm["X_clvm_target"][(adata.obs["condition"] == "stim").to_numpy()]
    assert np.allclose(written, alone)
    assert np.isfinite(adata.obsm["X_clvm_target"]).all()
    assert list(adata.uns["clvm"]["covariates"]) == ["age", "batch"]
    with pytest.raises(ValueError, match=r"not a column of adata\.obs"):
        clvm.anndata.fit(adata, clvm.ContrastiveLVM(1, 1), **words, covariates=["nothing"])
    networks = clvm.ContrastiveVAE(1, 1, hidden_layer_sizes=(4,), max_epochs=2, refine_steps=0)
    clvm.anndata.fit(adata, networks, **words, covariates=["age", "batch"])
    assert np.isfinite(adata.obsm["X_clvm_target"]).all()
    with pytest.raises(ValueError, match="do not apply to ContrastivePCA"):
        clvm.anndata.fit(adata, clvm.ContrastivePCA(1), **words, covariates=["age"])
