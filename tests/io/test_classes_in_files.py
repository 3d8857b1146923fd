"""Nested values in files: exact, by import path, and nothing is built that could run something."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.io.flatten import flatten, unflatten
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.priors.ard import ARD
from tests.io.model_bytes import change, opened

DATA = clvm.datasets.make_contrastive(60, 50, n_features=8, n_shared=2, random_state=0)


@dataclass(frozen=True)
class NotebookPrior(ARD):
    """A prior of someone else's module."""

    strength: float = 2.0


@dataclass(frozen=True)
class NotebookLikelihood(Gaussian):
    """A likelihood of someone else's module."""


class NotebookState(NamedTuple):
    scales: Any
    names: tuple[str, ...]


@dataclass(frozen=True)
class Stranger:
    """Frozen, but no part of a model."""

    command: str = "true"


def fitted() -> Any:
    prior, likelihood = NotebookPrior(0.5, 0.25, strength=3.0), NotebookLikelihood("feature")
    model = clvm.ContrastiveLVM(1, 1, shared_prior=prior, likelihood=likelihood, inference="vb")
    return model.fit(DATA.target, background=DATA.background)


@pytest.mark.parametrize(
    "value",
    [
        {"a": [1, 2.5, None, True, "x"], "b": (), "c": float("-inf")},
        {1: "whole", ("a", 2): {"$odd": 3}, "$": None},
        NotebookState(np.arange(3), ("a", "b")),
        [clvm.Horseshoe(0.5, groups={"g": ("a",)}), clvm.SVI(rank=3), clvm.StudentT("learn")],
        {"nested": {"x y": np.eye(2, dtype=np.float32), "x.y": np.ones(2, dtype=bool)}},
    ],
    ids=repr,
)
def test_values_come_back_as_they_were(value: Any) -> None:
    arrays: dict[str, np.ndarray] = {}
    flat = flatten(value, arrays)
    held = dict(arrays)
    again = unflatten(flat, held)
    assert not held
    assert type(again) is type(value)
    np.testing.assert_equal(again, value)
    again_arrays: dict[str, np.ndarray] = {}
    again_flat = flatten(again, again_arrays)
    assert again_flat == flat
    assert {n: a.tobytes() for n, a in again_arrays.items()} == {
        n: a.tobytes() for n, a in arrays.items()
    }


def test_priors_and_likelihoods_of_other_modules_are_saved(tmp_path: Path) -> None:
    model, path = fitted(), tmp_path / "model.clvm"
    model.save(path)
    again = clvm.load_model(path)
    assert again.get_params() == model.get_params()
    assert type(again.shared_prior) is NotebookPrior
    np.testing.assert_array_equal(again.transform(DATA.target), model.transform(DATA.target))


def test_a_module_that_is_not_loaded_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.clvm"
    fitted().save(path)
    monkeypatch.delitem(sys.modules, __name__)
    with pytest.raises(clvm.ModelFileError, match=r"model\.clvm needs the class 'Notebook\w+' of"):
        clvm.load_model(path)
    assert __name__ not in sys.modules


def test_classes_that_cannot_be_found_again_are_refused_when_saving(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Local(ARD):
        pass

    model = fitted().set_params(shared_prior=Local())
    with pytest.raises(TypeError, match=r"<locals>.Local cannot be saved, because it could not be"):
        model.save(tmp_path / "model.clvm")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "path",
    [
        f"{__name__}:Stranger",
        f"{__name__}:fitted",
        "subprocess:Popen",
        "pathlib:Path",
        "builtins:eval",
        "contrastive_lvm:load_model",
        "contrastive_lvm:ContrastiveLVM",
        "contrastive_lvm.__main__:run",
        "contrastive_lvm.nowhere:ARD",
        "contrastive_lvm.priors.ard:ARD",
    ],
)
def test_other_classes_are_not_built(path: str, tmp_path: Path) -> None:
    file = tmp_path / "model.clvm"
    model = clvm.ContrastiveLVM(1, 1, shared_prior="ard", inference="vb")
    model.fit(DATA.target, background=DATA.background).save(file)
    parameters = opened(file.read_bytes()).settings["parameters"]
    prior = {"$class": path, "fields": {"a0": 0.001, "b0": 0.001}}
    change(file, parameters={**parameters, "shared_prior": prior})
    with pytest.raises(clvm.ModelFileError, match=r"is damaged: .*; save it again\."):
        clvm.load_model(file)
