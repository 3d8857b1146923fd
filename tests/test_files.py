"""Model files: exact round trips; damaged, foreign and newer files refused."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file, save_file

import contrastive_lvm as clvm

DATA = clvm.datasets.make_contrastive(60, 50, n_features=8, n_shared=2, random_state=0)


def fitted() -> list[Any]:
    frames = [
        pd.DataFrame(rows, columns=list("abcdefgh")) for rows in (DATA.target, DATA.background)
    ]
    models: list[Any] = [
        clvm.ContrastiveLVM(2, 2),
        clvm.ContrastiveLVM(1, 2, likelihood=clvm.Gaussian("feature"), inference=clvm.EM(tol=1e-2)),
        clvm.ContrastiveLVM(1, 0, n_init=2, random_state=3),
        clvm.ContrastiveLVM(2, 2, likelihood="student_t", inference=clvm.EM(tol=1e-2)),
        clvm.ContrastiveLVM(2, 3, likelihood=clvm.StudentT(per="sample"), shared_prior="ard"),
        clvm.ContrastiveLVM(2, 2, target_prior=clvm.Horseshoe(delta=0.5)),
        clvm.ContrastiveLVM(2, 2, target_prior=clvm.GroupLasso(30.0, groups={"g": ["a", "b"]})),
        clvm.ContrastivePCA(2),
    ]
    for model in models:
        model.fit(frames[0], background=frames[1])
    return [*models, clvm.PPCA(3).fit(DATA.target)]


MODELS = fitted()


def public(model: Any) -> dict[str, Any]:
    return {k: v for k, v in vars(model).items() if k.endswith("_") and k != "posterior_"}


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_round_trip_is_exact(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    assert type(again) is type(model)
    assert repr(again) == repr(model)
    learned, restored = public(model), public(again)
    assert learned.keys() == restored.keys()
    for name, value in learned.items():
        np.testing.assert_array_equal(restored[name], value, err_msg=name)
    named = hasattr(model, "feature_names_in_")
    rows = pd.DataFrame(DATA.target, columns=list("abcdefgh")) if named else DATA.target
    np.testing.assert_array_equal(again.transform(rows), model.transform(rows))
    if hasattr(model, "score_samples"):
        np.testing.assert_array_equal(again.score_samples(rows), model.score_samples(rows))
    assert list(tmp_path.iterdir()) == [tmp_path / "model.clvm"]


def change(path: Path, **changes: Any) -> None:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        settings = json.loads(file.metadata()["settings"])
    save_file(load_file(path), path, metadata={"settings": json.dumps({**settings, **changes})})


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"version": 99}, "version 99.*update contrastive-lvm"),
        ({"format": "other"}, "is not a contrastive-lvm model file"),
        ({"estimator": "os.system"}, "unknown estimator 'os.system'"),
        ({"sha256": "0"}, "is damaged: its arrays do not match"),
        ({"parameters": {"nonsense": 1}}, "is damaged"),
        ({"parameters": {"likelihood": {"object": "Popen", "fields": {}}}}, "is damaged"),
        ({"facts": {}}, "is damaged"),
    ],
)
def test_altered_files_are_refused(changes: dict[str, Any], pattern: str, tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    MODELS[0].save(path)
    change(path, **changes)
    with pytest.raises(ValueError, match=pattern):
        clvm.load_model(path)


@pytest.mark.parametrize("seed", range(40))
def test_no_flipped_byte_loads_silently(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    MODELS[0].save(path)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    content[rng.integers(len(content) // 2, len(content))] ^= int(rng.integers(1, 256))
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"damaged|whole model file|unknown|not a|version"):
        clvm.load_model(path)


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.99])
def test_truncated_files_are_refused(keep: float, tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    MODELS[0].save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if keep < 1 else int(keep)])
    with pytest.raises(ValueError, match="is not a whole model file"):
        clvm.load_model(path)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a file"):
        clvm.load_model(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="folder that does not exist"):
        MODELS[0].save(tmp_path / "nowhere" / "model.clvm")


@pytest.mark.slow
def test_draws_of_the_sampler_travel(tmp_path: Path) -> None:
    pytest.importorskip("numpyro", reason="the extra jax is not installed")
    data = clvm.datasets.make_contrastive(30, 30, n_features=5, n_shared=1, random_state=0)
    engine = clvm.NUTS(n_warmup=50, n_draws=50, n_chains=2, given={"log noise": 0.0})
    model = clvm.ContrastiveLVM(1, 1, inference=engine, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few draws may not have converged
        model.fit(data.target, background=data.background)
    model.save(tmp_path / "model")
    loaded = clvm.load_model(tmp_path / "model")
    assert loaded.inference == engine
    ours, theirs = model.draws(), loaded.draws()
    assert theirs.divergences == ours.divergences
    for part in ("values", "rhat", "ess"):
        for name, value in getattr(ours, part).items():
            np.testing.assert_array_equal(getattr(theirs, part)[name], value)
    np.testing.assert_array_equal(
        loaded.transform(data.target[:5]), model.transform(data.target[:5])
    )


def test_a_function_as_learning_rate_cannot_be_saved(tmp_path: Path) -> None:
    pytest.importorskip("numpyro", reason="the extra jax is not installed")
    data = clvm.datasets.make_contrastive(30, 30, n_features=5, n_shared=1, random_state=0)
    engine = clvm.SVI(learning_rate=lambda step: 0.01, max_iter=100)
    model = clvm.ContrastiveLVM(1, 1, inference=engine, random_state=0)
    with pytest.warns(UserWarning, match="SVI was stopped"):
        model.fit(data.target, background=data.background)
    with pytest.raises(TypeError, match=r"set model\.inference = 'svi' first"):
        model.save(tmp_path / "model")
    model.inference = "svi"
    model.save(tmp_path / "model")
    assert clvm.load_model(tmp_path / "model").bound_ == model.bound_
