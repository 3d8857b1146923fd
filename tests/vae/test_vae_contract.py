"""Autoencoders as estimators: files, scikit-learn's habits, bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import contrastive_lvm as clvm
from contrastive_lvm.arrays import NamedRows
from tests.io.model_bytes import change, opened
from tests.vae.autoencoders import DATA, QUICK, fitted, known, quick, same

pytest.importorskip("jax", reason="the extra jax is not installed")


# Files


def test_round_trip_is_exact(tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    for model in (known(), clvm.VAE(2, **QUICK, checkpoint=tmp_path / "state").fit(DATA.target)):
        model.save(path)
        again = clvm.load_model(path)
        assert type(again) is type(model)
        assert again.hidden_layer_sizes == model.hidden_layer_sizes
        same(again, model)
        np.testing.assert_array_equal(
            again.score_samples(DATA.target, n_draws=3), model.score_samples(DATA.target, n_draws=3)
        )
        for name in (
            "lower_bound_",
            "lower_bound_error_",
            "noise_variance_",
            "n_iter_",
            "converged_",
        ):
            assert getattr(again, name) == getattr(model, name)


def test_networks_of_other_shapes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    wrong = clone(known()).set_params(hidden_layer_sizes=(9,))
    for name, value in vars(known()).items():
        if name.endswith("_"):
            setattr(wrong, name, value)
    with pytest.raises(ValueError, match=r"cannot be saved: .* has shape"):
        wrong.save(path)
    known().save(path)
    parameters = opened(path.read_bytes()).settings["parameters"]
    for hidden in ([9], [10**12], [8] * 10_000):  # nothing of that size is ever allocated
        change(path, parameters={**parameters, "hidden_layer_sizes": {"$tuple": hidden}})
        with pytest.raises(
            clvm.ModelFileError, match=r"is damaged: .*(has shape|number of layers)"
        ):
            clvm.load_model(path)


# scikit-learn, bad input


def test_scikit_learn_habits() -> None:
    again = clone(known())
    assert again.get_params() == known().get_params()
    pipe = make_pipeline(StandardScaler(), clvm.VAE(2, **QUICK))
    frame = pipe.set_output(transform="pandas").fit_transform(DATA.target)
    assert list(frame.columns) == ["vae0", "vae1"]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        ({"n_target": 0}, "n_target=0 must be an integer of at least 1"),
        ({"n_shared": 2.5}, "n_shared=2.5 must be an integer"),
        ({"hidden_layer_sizes": 128}, "hidden_layer_sizes=128 must list the widths"),
        ({"hidden_layer_sizes": (128, 0)}, "hidden_layer_sizes=0 must be an integer"),
        ({"activation": "swoosh"}, "activation='swoosh' is unknown"),
        ({"likelihood": "student_t"}, "is not an output of ContrastiveVAE"),
        ({"separation": -1}, "separation=-1 must be a number of at least 0"),
        ({"learning_rate": 0.0}, "learning_rate=0.0 must be a positive number"),
        ({"learning_rate": float("nan")}, "learning_rate=nan must be a positive number"),
        ({"batch_size": 0}, "batch_size=0 must be an integer"),
        ({"max_epochs": 0}, "max_epochs=0 must be an integer"),
        ({"kl_warm_up": 2}, "kl_warm_up=2 must be a share"),
        ({"clip": -1}, "clip=-1 must be a positive number"),
        ({"validation_fraction": 0.9}, "validation_fraction=0.9 must be a share"),
        ({"patience": 0}, "patience=0 must be an integer"),
        ({"n_devices": 99}, "n_devices=99 is more than the"),
        ({"n_devices": 0}, "n_devices=0 must be an integer"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(words: dict[str, Any], match: str) -> None:
    with pytest.raises((TypeError, ValueError), match=match) as caught:
        fitted(**words)
    assert "\n" not in str(caught.value)


def broken(value: float) -> np.ndarray:
    rows = DATA.target.copy()
    rows[0, 0] = value
    return rows


@pytest.mark.parametrize(
    ("X", "B", "words", "match"),
    [
        (DATA.target, None, {}, "background=None, but the shared latents"),
        (DATA.target, DATA.background[:, :7], {}, "background has 7 features, but X has 8"),
        (broken(np.inf), DATA.background, {}, "X contains infinity"),
        (DATA.target[:1], DATA.background, {}, "X has 1 sample"),
        (np.zeros((30, 8)), np.zeros((20, 8)), {}, "do not vary"),
        (DATA.target, DATA.background, {"likelihood": "bernoulli"}, "X contains the value"),
        (DATA.target, DATA.background, {"likelihood": "poisson"}, "X contains"),
        (np.full((30, 8), np.nan), DATA.background, {}, "X has no observed entry in columns"),
    ],
)
def test_bad_rows_are_refused_in_a_sentence(
    X: Any, B: Any, words: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        quick(**words).fit(X, background=B)


def test_bad_arguments_of_methods_are_refused() -> None:
    with pytest.raises(ValueError, match="of='both' is unknown"):
        known().latents(DATA.target, of="both")
    with pytest.raises(ValueError, match="T has shape"):
        known().inverse_transform([[0.0]])
    with pytest.raises(ValueError, match="n_draws=0"):
        known().score_samples(DATA.target, n_draws=0)
    with pytest.raises(ValueError, match="parts='noise' is unknown"):
        known().reconstruct(DATA.target, parts=("noise",))


def test_names_of_features_are_those_of_the_last_fit() -> None:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    names = [f"f{i}" for i in range(DATA.target.shape[1])]
    model = quick().fit(
        pd.DataFrame(DATA.target, columns=names),
        background=pd.DataFrame(DATA.background, columns=names),
    )
    assert list(model.feature_names_in_) == names
    lazy = [da.from_array(A, chunks=(50, -1)) for A in (DATA.target, DATA.background)]
    model.fit(lazy[0], background=lazy[1])
    assert not hasattr(model, "feature_names_in_")
    model.fit(NamedRows(lazy[0], names), background=NamedRows(lazy[1], names))
    assert list(model.feature_names_in_) == names
    with pytest.raises(ValueError, match="background has the features of X in another order"):
        model.fit(NamedRows(lazy[0], names), background=NamedRows(lazy[1], names[::-1]))
