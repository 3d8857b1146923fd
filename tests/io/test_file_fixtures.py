"""Model files of every format version so far keep loading, and say what they said.

`python tests/io/test_file_fixtures.py` writes files of the present version, never over one.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.io.container import VERSION
from contrastive_lvm.io.model_files import read_model, write_model
from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.preparation import Origin, Preparation, Scaling

HOME = Path(__file__).parent / "fixtures" / "models"
FILES = sorted(HOME.glob("*/*.clvm"))
NAMES = ["a", "b", "größe", "d", "e"]
METHODS = ("transform", "score_samples", "reconstruct", "denoise", "impute")
NETWORK: dict[str, Any] = {
    "hidden_layer_sizes": (4,),
    "max_epochs": 2,
    "batch_size": 8,
    "refine_steps": 0,
    "random_state": 0,
}


def linear(*sizes: int, **words: Any) -> Callable[[], Any]:
    return lambda: fitted(clvm.ContrastiveLVM(*sizes, **words), small())


def fitted(model: Any, sets: tuple[pd.DataFrame, pd.DataFrame]) -> Any:
    return model.fit(sets[0], background=sets[1])


def small() -> tuple[pd.DataFrame, pd.DataFrame]:
    data = clvm.datasets.make_contrastive(14, 12, n_features=5, n_shared=1, random_state=0)
    first, second = (pd.DataFrame(X, columns=NAMES) for X in (data.target, data.background))
    return first.round(3), second.round(3)


def counts() -> tuple[pd.DataFrame, pd.DataFrame]:
    first, second = small()
    return (first / 4.0).map(np.exp).round(), (second / 4.0).map(np.exp).round()


def mixed() -> tuple[pd.DataFrame, pd.DataFrame]:
    sets = small()
    for X, counted in zip(sets, counts(), strict=True):
        X["b"], X["größe"] = counted["b"], (X["größe"] > 0).astype(float)
    return sets


KINDS = {"gaussian": ["a", "d", "e"], "poisson": ["b"], "bernoulli": ["größe"]}
SVI = clvm.SVI(max_iter=100)
MODELS: dict[str, Callable[[], Any]] = {
    "gaussian": linear(1, 1),
    "feature_noise": linear(1, 1, likelihood=clvm.Gaussian("feature"), inference=clvm.EM(tol=0.1)),
    "student_t": linear(1, 1, likelihood=clvm.StudentT(df=3.0), inference=clvm.EM(tol=0.1)),
    "student_t_rows": linear(
        1, 1, likelihood=clvm.StudentT("learn", per="sample"), inference=clvm.EM(tol=0.1)
    ),
    "ard": linear(1, 2, shared_prior=clvm.ARD(1e-2, 1e-2), inference="vb"),
    "horseshoe": linear(
        1, 1, target_prior=clvm.Horseshoe(0.5, groups={"g": ["a", "größe"]}), inference="vb"
    ),
    "group_lasso": linear(1, 1, target_prior=clvm.GroupLasso(2.0, groups=(0, 0, 1, 1, 2))),
    "mixture": linear(1, 1, latent_prior=clvm.Mixture(2), inference=clvm.EM(tol=0.1)),
    "poisson": lambda: fitted(
        clvm.ContrastiveLVM(1, 1, likelihood="poisson", inference=SVI, random_state=0), counts()
    ),
    "negative_binomial": lambda: fitted(
        clvm.ContrastiveLVM(
            1, 1, likelihood="negative_binomial", inference=SVI, random_state=0, target_prior="ard"
        ),
        counts(),
    ),
    "mixed": lambda: fitted(
        clvm.ContrastiveLVM(1, 1, likelihood=clvm.Mixed(KINDS), inference=SVI, random_state=0),
        mixed(),
    ),
    "variational_counts": lambda: fitted(
        clvm.ContrastiveLVM(1, 1, likelihood="negative_binomial"), counts()
    ),
    "ppca": lambda: clvm.PPCA(2).fit(small()[0]),
    "contrastive_pca": lambda: fitted(clvm.ContrastivePCA(2, scale=True), small()),
    "generalized_contrastive_pca": lambda: fitted(
        clvm.GeneralizedContrastivePCA(2, orthogonal=True), small()
    ),
    "vae": lambda: clvm.VAE(1, **NETWORK).fit(small()[0]),
    "contrastive_vae": lambda: fitted(clvm.ContrastiveVAE(1, 1, **NETWORK), small()),
    "contrastive_vae_counts": lambda: fitted(
        clvm.ContrastiveVAE(1, 1, likelihood="negative_binomial", **NETWORK), counts()
    ),
    "prepared": linear(1, 1),
}
NEED_JAX = {"poisson", "negative_binomial", "mixed", "vae", "contrastive_vae"}
PREPARATION = Preparation(
    NAMES,
    named=True,
    scaling=Scaling("standard", np.arange(5.0), np.arange(1.0, 6.0)),
    origin=Origin(Path("mice.csv"), None, Choice(by="group", target=["case"])),
)


def said(model: Any, rows: pd.DataFrame) -> dict[str, Any]:
    """What a model says about rows."""
    found = {name: getattr(model, name)(rows) for name in METHODS if hasattr(model, name)}
    return {name: np.asarray(value).tolist() for name, value in found.items()}


def rows_for(name: str) -> pd.DataFrame:
    sets = {"poisson": counts, "negative_binomial": counts, "mixed": mixed}
    counted = name.endswith("counts")
    rows = (counts if counted else sets.get(name, small))()[0].head(3).copy()
    if not name.endswith("contrastive_pca"):
        rows.loc[0, "d"] = np.nan
    return rows


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_files_of_all_versions_say_what_they_said(file: Path) -> None:
    if file.stem.removesuffix("_counts") in NEED_JAX:
        pytest.importorskip("numpyro", reason="the extra jax is not installed")
    told = json.loads(file.with_suffix(".json").read_text(encoding="utf-8"))
    model, section = read_model(file)
    assert repr(model) == told["model"]
    assert list(model.feature_names_in_) == NAMES
    assert model.n_features_in_ == 5
    for name, value in told["learned"].items():
        found = np.asarray(getattr(model, name))
        expected = np.reshape(value, found.shape)  # JSON has no shape of empty arrays
        np.testing.assert_array_equal(found, expected, err_msg=name)
    rows = pd.DataFrame(told["rows"], columns=NAMES, dtype=float)
    single = "vae" in file.stem  # precision, and compilers differ
    for name, expected in told["says"].items():
        np.testing.assert_allclose(
            getattr(model, name)(rows),
            np.array(expected, dtype=float),
            rtol=1e-3 if single else 1e-9,
            atol=1e-4 if single else 1e-9,
            err_msg=name,
        )
    assert (section is not None) == (file.stem == "prepared")
    if section is not None:
        assert isinstance(section, Preparation)
        assert section.features == PREPARATION.features
        assert section.origin is not None
        assert section.origin.choice == PREPARATION.origin.choice  # type: ignore[union-attr]
        np.testing.assert_array_equal(section.scaling[1:], PREPARATION.scaling[1:])


def test_there_is_a_file_of_every_kind_in_the_present_version() -> None:
    present = {file.stem for file in FILES if file.parent.name == f"v{VERSION}"}
    assert present == set(MODELS)
    kinds = {json.loads(f.with_suffix(".json").read_text("utf-8"))["kind"] for f in FILES}
    projections = {"ContrastivePCA", "GeneralizedContrastivePCA"}
    assert kinds == {"ContrastiveLVM", *projections, "ContrastiveVAE", "PPCA", "VAE"}


def write() -> None:
    """Files of the present version that are not there yet."""
    import warnings

    folder = HOME / f"v{VERSION}"
    folder.mkdir(parents=True, exist_ok=True)
    for name, make in MODELS.items():
        path = folder / f"{name}.clvm"
        if path.exists():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fits this short have not converged
            model = make()
        write_model(model, path, PREPARATION if name == "prepared" else None)
        rows = rows_for(name)
        learned = {
            key: np.asarray(value).tolist()
            for key, value in vars(model).items()
            if key.endswith(("components_", "mean_", "variance_", "ratio_"))
            or key == "lower_bound_"
        }
        told = {
            "kind": type(model).__name__,
            "model": repr(model),
            "learned": learned,
            "rows": rows.astype(object).where(rows.notna(), None).to_numpy().tolist(),
            "says": said(model, rows),
        }
        text = json.dumps(told, allow_nan=False, ensure_ascii=False)
        path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
