"""Model files that someone has forged: the checksum is right, the contents disagree."""

import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.draws import Draws
from contrastive_lvm.io.container import VERSION, ModelFileError
from tests.io.model_bytes import Contents, opened, sealed

MODELS = Path(__file__).parent / "fixtures" / "models" / f"v{VERSION}"
LINEAR = ["gaussian", "student_t", "ard", "poisson"]


def forge(source: Path, place: Path, arrays: dict[str, np.ndarray]) -> Path:
    """Write a file with other arrays, whose settings and checksum are right for them."""
    contents = opened(source.read_bytes())
    assert set(arrays) <= set(contents.arrays)
    place.write_bytes(sealed(Contents(contents.settings, contents.arrays | arrays).described()))
    return place


def arrays_of(source: Path) -> dict[str, np.ndarray]:
    return {name: array.copy() for name, array in opened(source.read_bytes()).arrays.items()}


def refuse(path: Path, words: str) -> None:
    with pytest.raises(ModelFileError, match=words):
        clvm.load_model(path)


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("array", ["loadings.target", "loadings.shared", "means.background"])
def test_values_whose_squares_overflow(name: str, array: str, tmp_path: Path) -> None:
    source, path = MODELS / f"{name}.clvm", f"state.posterior.{array}"
    value = arrays_of(source)[path]
    assert clvm.load_model(forge(source, tmp_path / "m", {path: value}))
    value.flat[0] = -1e200
    refuse(forge(source, tmp_path / "m", {path: value}), "has a value that is not finite, or too")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros((1, 1)), "a diagonal that is not positive"),
        (np.full((1, 1), np.nan), "not finite"),
        (np.ones((2, 2)), "shape"),
    ],
)
def test_information_that_cannot_be(value: np.ndarray, words: str, tmp_path: Path) -> None:
    source, path = MODELS / "variational_counts.clvm", "state.posterior.information.target"
    assert arrays_of(source)[path].shape == (1, 1)
    refuse(forge(source, tmp_path / "m", {path: value}), words)


@pytest.mark.parametrize("rows", [9, 13, 26])
@pytest.mark.parametrize("name", ["student_t", "student_t_rows"])
def test_weights_of_other_rows(name: str, rows: int, tmp_path: Path) -> None:
    source, path = MODELS / f"{name}.clvm", "state.posterior.weights.0"
    value = np.resize(arrays_of(source)[path], (rows, arrays_of(source)[path].shape[1]))
    refuse(forge(source, tmp_path / "m", {path: value}), "weights are those of other rows")


@pytest.mark.parametrize("name", ["gaussian", "poisson"])
def test_more_dimensions_than_the_parameters_say(name: str, tmp_path: Path) -> None:
    source, path = MODELS / f"{name}.clvm", "state.posterior.loadings.target"
    arrays = arrays_of(source)
    changes = {path: np.hstack([arrays[path]] * 3)}
    covariance = "state.posterior.loading_covariance"
    if covariance in arrays:
        changes[covariance] = np.ones((10, 5))
    refuse(forge(source, tmp_path / "m", changes), "3 target dimensions in place of 1")


def with_draws(path: Path) -> Path:
    """A model with draws, as NUTS would leave them."""
    model = clvm.load_model(MODELS / "gaussian.clvm")
    sizes = {
        "target loadings": (5, 1),
        "shared latents of background": (12, 1),
        "target mean": (5,),
    }
    values = {name: np.ones((2, 3, *shape)) for name, shape in sizes.items()}
    draws = Draws({**values, "noise variance": np.ones((2, 3))}, {}, {})
    model.posterior_ = model.posterior_._replace(draws=draws)
    model.save(path)
    return path


@pytest.mark.parametrize(
    ("at", "shape"), [(0, (9, 1)), (0, (5, 2)), (0, (5,)), (1, (9,)), (2, (14, 1)), (3, (9,))]
)
def test_draws_of_another_model(at: int, shape: tuple[int, ...], tmp_path: Path) -> None:
    source = with_draws(tmp_path / "whole.clvm")
    assert clvm.load_model(source).posterior_.draws is not None
    path = f"state.posterior.draws.values.{at}"
    refuse(forge(source, tmp_path / "m", {path: np.ones((2, 3, *shape))}), "its draws of .* have")


def test_networks_of_other_sizes(tmp_path: Path) -> None:
    source = MODELS / "contrastive_vae.clvm"
    contents = opened(source.read_bytes())
    contents.settings["parameters"]["n_target"] = 3
    (tmp_path / "m").write_bytes(sealed(contents))
    refuse(tmp_path / "m", "other dimensions than its parameters say")


def counts(flat: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where there is a number of something."""
    items = list(flat.items() if isinstance(flat, dict) else enumerate(flat))
    inner = [at for key, v in items if isinstance(v, dict | list) for at in counts(v, (*way, key))]
    return inner + [(*way, key) for key, v in items if str(key)[:2] == "n_" and type(v) is int]


def test_no_count_is_negative(tmp_path: Path) -> None:
    data = clvm.datasets.make_contrastive(60, 50, n_features=5, n_shared=1, random_state=0)
    model = clvm.MultiSetLVM("auto", random_state=0)
    sets = ["a"] * 60 + ["b"] * 50
    model.fit(np.vstack([data.target, data.background]), sets=sets).save(tmp_path / "sets.clvm")
    n = 0
    for source in (*sorted(MODELS.glob("*.clvm")), tmp_path / "sets.clvm"):
        raw = source.read_bytes()
        for *way, last in counts(opened(raw).settings["state"]):
            contents = opened(raw)
            holder = contents.settings["state"]
            for key in way:
                holder = holder[key]
            holder[last], n = -3, n + 1
            (tmp_path / "m").write_bytes(sealed(contents))
            refuse(tmp_path / "m", f"{last}=-3 is a negative count")
    assert n > 20


def test_a_file_of_holes_is_not_read(tmp_path: Path) -> None:
    """A file may say 60 GB and hold 4 kB; reading it would take the memory it claims."""
    path = tmp_path / "holes.clvm"
    raw = (MODELS / "gaussian.clvm").read_bytes()
    path.write_bytes(raw)
    os.truncate(path, 60 << 30)
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no holes")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refuse(path, r"holes\.clvm claims 64,424,509,440 bytes, but only [\d,]+ are stored")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 200_000
