"""Model files: exact round trips; damaged, foreign and newer files refused."""

import copy
import os
import struct
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import SafetensorError
from safetensors.numpy import save_file

import contrastive_lvm as clvm
from contrastive_lvm.io import container
from tests.io.model_bytes import change

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
        clvm.GeneralizedContrastivePCA(2),
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


@pytest.mark.parametrize(
    ("changes", "pattern"),
    [
        ({"version": 99}, "version 99.*update contrastive-lvm"),
        ({"format": "other"}, "is not a contrastive-lvm model file"),
        ({"estimator": "os.system"}, "unknown estimator 'os.system'"),
        ({"version": True}, "is damaged: version=True"),
        ({"version": 0}, "is damaged: version=0"),
        ({"feature_names": ["a"]}, "is damaged: its 1 names are not those of its features"),
        ({"n_features": 10**15, "feature_names": None}, "is damaged: normal_components_ has shape"),
        ({"more": 1}, r"is damaged: its settings are not those of the model"),
        ({"parameters": {"nonsense": 1}}, "is damaged"),
        ({"parameters": {"likelihood": {"$class": "os:Popen", "fields": {}}}}, "needs the class"),
        ({"state": {}}, "is damaged: it lacks '"),
    ],
)
def test_altered_files_are_refused(changes: dict[str, Any], pattern: str, tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    MODELS[0].save(path)
    change(path, **changes)
    with pytest.raises(clvm.ModelFileError, match=pattern):
        clvm.load_model(path)


@pytest.mark.parametrize("seed", range(40))
def test_no_flipped_byte_loads_silently(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    MODELS[0].save(path)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(seed)
    content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
    path.write_bytes(content)
    with pytest.raises(clvm.ModelFileError, match=r"damaged|complete model file|not a contrastive"):
        clvm.load_model(path)


@pytest.mark.parametrize("keep", [0, 5, 100, 0.5, 0.99])
def test_truncated_files_are_refused(keep: float, tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    MODELS[0].save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if keep < 1 else int(keep)])
    with pytest.raises(ValueError, match="is not a complete model file"):
        clvm.load_model(path)


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a file"):
        clvm.load_model(tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="cannot be written"):
        MODELS[0].save(tmp_path / "nowhere" / "model.clvm")


@pytest.mark.parametrize("length", [2**63, 2**40, 10**8, 10**5])
def test_a_header_that_claims_to_be_huge_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    path.write_bytes(struct.pack("<Q", length) + b"{}" * 100)
    with pytest.raises(clvm.ModelFileError, match="is not a complete model file"):
        clvm.load_model(path)


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x04K\x01.", b"PK\x03\x04", b"{}", b"a,b\n1,2\n"], ids=len
)
def test_foreign_files_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    path.write_bytes(content)
    with pytest.raises(clvm.ModelFileError, match="is not a complete model file"):
        clvm.load_model(path)
    save_file({"weights": np.ones(3)}, path)  # of another program
    with pytest.raises(clvm.ModelFileError, match="is not a contrastive-lvm model file"):
        clvm.load_model(path)


def test_other_kinds_of_our_own_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    container.write_container(
        path, "contrastive-lvm training state", {"a": np.ones(2)}, {"facts": {}}
    )
    with pytest.raises(clvm.ModelFileError, match="is not a contrastive-lvm model file"):
        clvm.load_model(path)


# Writing


@pytest.mark.parametrize("failure", [OSError("disk"), KeyboardInterrupt(), MemoryError()], ids=repr)
@pytest.mark.parametrize("when", ["begin", "end"])
def test_a_failure_leaves_the_old_file_and_no_litter(
    failure: BaseException, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.clvm"
    MODELS[0].save(path)
    before = path.read_bytes()

    def fails(arrays: Any, file: Path, metadata: Any) -> None:
        if when == "end":
            save_file(arrays, file, metadata)
        else:
            Path(file).write_bytes(b"half")
        raise failure

    monkeypatch.setattr(container, "save_file", fails)
    with pytest.raises(type(failure)):
        MODELS[1].save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(arrays: Any, file: Path, metadata: Any) -> None:
        raise SafetensorError("Error while serializing: No space left on device")

    monkeypatch.setattr(container, "save_file", fails)
    with pytest.raises(OSError, match=r"cannot be written \(Error while serializing: No space"):
        MODELS[0].save(tmp_path / "model.clvm")
    assert not list(tmp_path.iterdir())


def test_two_writers_leave_one_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    writers = [threading.Thread(target=model.save, args=(path,)) for model in MODELS[:2] * 5]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert clvm.load_model(path).lower_bound_ in {model.lower_bound_ for model in MODELS[:2]}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.name == "nt", reason="permissions are those of POSIX")
def test_permissions_and_links_are_those_of_any_file(tmp_path: Path) -> None:
    plain, path, link = (tmp_path / name for name in ("plain", "model.clvm", "link"))
    plain.touch()
    MODELS[0].save(path)
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    link.symlink_to(path)
    MODELS[1].save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert clvm.load_model(path).lower_bound_ == MODELS[1].lower_bound_
    with pytest.raises(IsADirectoryError, match="is a folder; name a file in it"):
        MODELS[0].save(tmp_path)


# Exactness


@pytest.mark.parametrize(
    "rearranged",
    [np.asfortranarray, lambda a: np.repeat(a, 2, axis=-1)[..., ::2], lambda a: a[::-1][::-1]],
    ids=["fortran", "strided", "reversed"],
)
def test_memory_order_does_not_matter(rearranged: Any, tmp_path: Path) -> None:
    model = clvm.ContrastiveLVM(2, 2).fit(DATA.target, background=DATA.background)
    posterior = model.posterior_
    changed = {
        name: rearranged(value)
        for name, value in posterior._asdict().items()
        if isinstance(value, np.ndarray)
    }
    model.posterior_ = posterior._replace(**changed)
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm").posterior_
    for name in changed:
        assert getattr(again, name).tobytes() == getattr(posterior, name).tobytes(), name


SETTINGS: dict[str, dict[str, Any]] = {
    "tuple groups": {"target_prior": clvm.GroupLasso(3.0, groups=(0, 0, 1, 1, 2, 2, 3, 3))},
    "list groups": {"target_prior": clvm.GroupLasso(3.0, groups=list("aabbccdd"))},
    "dict groups": {"target_prior": clvm.Horseshoe(0.3, groups={1: (0, 1), "b": [2]}, p0=0.4)},
    "infinite": {"target_prior": clvm.GroupLasso(3.0, groups={float("inf"): [1, 2]})},
    "numpy": {"n_target": np.int64(1), "inference": clvm.EM(tol=np.float64(0.5))},
    "student": {"likelihood": clvm.StudentT(3.5, "sample", "feature")},
    "ard": {"shared_prior": clvm.ARD(0.5, 0.25), "inference": clvm.VariationalBayes(50, 0.1, 3)},
    "words": {"likelihood": "student_t", "target_prior": "ard", "n_shared": "auto"},
    "seed": {"random_state": 2**32 - 1, "n_init": 2, "verbose": True},
}


@pytest.mark.parametrize("case", SETTINGS)
@pytest.mark.filterwarnings("ignore:EM stopped:sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:Variat:sklearn.exceptions.ConvergenceWarning")
def test_settings_come_back_as_they_were(case: str, tmp_path: Path) -> None:
    parameters = {"n_target": 1, "n_shared": 2, **SETTINGS[case]}
    model = clvm.ContrastiveLVM(**parameters).fit(DATA.target, background=DATA.background)
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm")
    assert again.get_params() == model.get_params()
    assert repr(again) == repr(model) or case == "numpy"


def test_a_random_state_goes_on_where_it_was(tmp_path: Path) -> None:
    state = np.random.RandomState(5)
    state.standard_normal(3)  # half of a pair is kept
    model = clvm.ContrastiveLVM(1, 1, n_init=2, random_state=state)
    model.fit(DATA.target, background=DATA.background).save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm").random_state
    np.testing.assert_array_equal(again.standard_normal(5), state.standard_normal(5))
    model.random_state = np.random.mtrand._rand  # NumPy's own cannot be put into a file as itself
    model.save(tmp_path / "model.clvm")
    assert isinstance(clvm.load_model(tmp_path / "model.clvm").random_state, np.random.RandomState)


def test_names_of_features_may_be_any_words(tmp_path: Path) -> None:
    names = ["größe", "名前", "a b", "", "\ud800", "'\"\\", "\n", "😀"]
    columns = pd.Index(names, dtype=object)  # texts of pandas 3.1 are UTF-8
    frames = [pd.DataFrame(X, columns=columns) for X in (DATA.target, DATA.background)]
    model = clvm.ContrastiveLVM(1, 1).fit(frames[0], background=frames[1])
    model.save(tmp_path / "模型.clvm")
    again = clvm.load_model(tmp_path / "模型.clvm")
    assert list(again.feature_names_in_) == names
    np.testing.assert_array_equal(again.transform(frames[0]), model.transform(frames[0]))


def test_a_model_that_makes_no_sense_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "model.clvm"
    model = clvm.ContrastiveLVM(1, 1).fit(DATA.target, background=DATA.background)
    for wrong in ({"n_target": "two"}, {"n_init": 0}, {"likelihood": "student_t"}):
        changed = copy.copy(model).set_params(**wrong)
        with pytest.raises(ValueError, match=r"this ContrastiveLVM cannot be saved: .*; fit it"):
            changed.save(path)
    model.set_params(target_prior=object())
    with pytest.raises(TypeError, match=r"target_prior=<object.* cannot be saved: a model file"):
        model.save(path)
    assert not path.exists()


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
    with pytest.raises(TypeError, match=r"inference\.learning_rate=<function.* cannot be saved"):
        model.save(tmp_path / "model")
    model.inference = "svi"
    model.save(tmp_path / "model")
    assert clvm.load_model(tmp_path / "model").lower_bound_ == model.lower_bound_


@pytest.mark.parametrize("path", [None, 5])
def test_what_is_no_path_is_refused(path: Any) -> None:
    model = clvm.PPCA(1).fit(np.random.default_rng(0).normal(size=(20, 4)))
    for call in (model.save, clvm.load_model):
        with pytest.raises(TypeError, match=f"path={path} is not a path; give the name of a file"):
            call(path)
