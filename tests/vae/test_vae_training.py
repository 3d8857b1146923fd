"""Training of autoencoders: repeatable, interruptible, safe; rows from anywhere, any device."""

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from tests.vae.autoencoders import DATA, counts, fitted, known, quick, same

pytest.importorskip("jax", reason="the extra jax is not installed")

from contrastive_lvm.rows import minibatches as shuffled
from contrastive_lvm.rows import reader
from contrastive_lvm.rows.reader import UNCHECKED, LocalRows, open_rows
from contrastive_lvm.vae.training import Training
from contrastive_lvm.vae.training_data import NetworkRows


def test_the_same_seed_gives_the_same_model() -> None:
    same(known(), fitted())
    assert (fitted(random_state=1).transform(DATA.target) != known().transform(DATA.target)).any()


class Stop:
    """Raises a keyboard interrupt in the middle of a round."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, real: Any) -> Any:
        def round_(training: Any) -> None:
            if training.state.n_rounds == self.after:
                self.after = -1
                raise KeyboardInterrupt
            real(training)

        return round_


@pytest.mark.parametrize("from_file", [False, True])
def test_interrupted_and_resumed_is_as_if_never_interrupted(
    *, from_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words: dict[str, Any] = {"max_epochs": 30}
    whole = fitted(**words)
    monkeypatch.setattr(Training, "round", Stop(2)(Training.round))
    path = tmp_path / "state"
    with pytest.warns(UserWarning, match=r"interrupted after epoch \d+; the best state"):
        model = fitted(**words, checkpoint=path)
    assert not model.converged_
    assert np.isfinite(model.transform(DATA.target)).all()
    assert list(tmp_path.iterdir()) == [path]
    resume = path if from_file else model.state_
    again = quick(**words, random_state=9)  # the state brings its seed along
    same(whole, again.fit(DATA.target, background=DATA.background, resume=resume))
    assert again.n_iter_ == 30
    assert not again.converged_  # all epochs were used
    np.testing.assert_array_equal(again.history_["epoch"], np.arange(1, 31))


def test_an_interrupt_before_anything_was_learned_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Training, "round", Stop(0)(Training.round))
    with pytest.raises(KeyboardInterrupt):
        fitted()


def test_a_state_of_another_training_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    fitted(checkpoint=path)
    for resume in (path, known().state_):
        with pytest.raises(ValueError, match="resume contains a training of"):
            quick(n_target=1).fit(DATA.target, background=DATA.background, resume=resume)
    with pytest.raises(FileNotFoundError, match="is not a file; give the checkpoint"):
        quick().fit(DATA.target, background=DATA.background, resume=tmp_path / "none")
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is not a complete training state"):
        quick().fit(DATA.target, background=DATA.background, resume=path)


@pytest.mark.parametrize("rate", [pytest.param(1e4, marks=pytest.mark.slow), 1e30])
def test_divergence_cuts_the_rate_and_leaves_no_nan(rate: float, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = fitted(learning_rate=rate, clip=1e30, checkpoint=tmp_path / "state")
    said = [str(w.message) for w in caught if "training diverged" in str(w.message)]
    assert said
    assert not model.converged_
    assert np.isfinite(model.transform(DATA.target)).all()
    assert np.isfinite(model.score_samples(DATA.target)).all()


def test_training_ends_when_held_out_rows_gain_nothing() -> None:
    model = fitted(max_epochs=2000, patience=3, kl_warm_up=0.0, learning_rate=0.01)
    assert model.n_iter_ < 2000
    assert model.converged_
    held_out = model.history_["validation_bound"]
    looks = held_out[np.isfinite(held_out)]
    assert len(looks) - np.argmax(looks) == 4
    np.testing.assert_array_equal(model.history_["epoch"], np.arange(1, model.n_iter_ + 1))


# Rows out of core


@pytest.mark.slow
def test_memory_maps_and_sparse_rows_give_what_arrays_give(tmp_path: Path) -> None:
    X, B = counts(300, 0), counts(200, 1)
    words: dict[str, Any] = {"likelihood": "poisson"}
    expected = quick(**words).fit(X, background=B)
    maps = []
    for name, rows in (("x", X), ("b", B)):
        np.save(tmp_path / name, rows)
        maps.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    for x, b in (maps, (sp.csr_matrix(X), sp.csr_array(B))):
        model = quick(**words).fit(x, background=b)
        np.testing.assert_array_equal(model.transform(x), expected.transform(X))
        assert model.lower_bound_ == expected.lower_bound_


@pytest.mark.slow
def test_dask_rows_are_never_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffled, "MOST_LOADED", 1000)
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    X, B = (da.from_array(rows, chunks=(40, 3)) for rows in (DATA.target, DATA.background))
    words: dict[str, Any] = {"max_epochs": 40}
    model, memory = quick(**words).fit(X, background=B), fitted(**words)
    np.testing.assert_allclose(model.transform(X), model.transform(DATA.target), atol=1e-5)
    assert model.score(X) == pytest.approx(memory.score(DATA.target), abs=0.3)
    with pytest.raises(ValueError, match="has 7 features, but ContrastiveVAE is expecting 8"):
        model.transform(X[:, :7])


def test_rows_in_files_are_read_by_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    memory = quick(max_epochs=2).fit(DATA.target, background=DATA.background)
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        X = file.create_dataset("x", data=DATA.target, chunks=(40, DATA.target.shape[1]))
        B = file.create_dataset("b", data=DATA.background, chunks=(40, DATA.target.shape[1]))
        monkeypatch.setattr("contrastive_lvm.rows.reader.CHUNK_ENTRIES", 400)
        largest: list[int] = []

        real = reader.floats

        def floats(rows: Any, *name: str) -> Any:
            largest.append(len(rows))
            return real(rows, *name)

        monkeypatch.setattr(reader, "floats", floats)
        model = quick(max_epochs=2).fit(X, background=B)
        found = model.transform(X)
    np.testing.assert_allclose(found, memory.transform(DATA.target), atol=1e-5)
    assert 1 < max(largest) <= 50 < len(DATA.target)


@pytest.mark.parametrize("few", [3, 1000])
def test_an_epoch_goes_through_all_rows(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    da = pytest.importorskip("dask.array", reason="the extra dask is not installed")
    X = np.arange(50.0)[:, None] * np.ones(3)
    lazy = open_rows(da.from_array(X, chunks=(7, 3)), "X", UNCHECKED)
    for rows in (NetworkRows(LocalRows(X)), NetworkRows(lazy)):
        left = rows.without(np.array([3, 30]))
        assert left.n_rows == 48
        np.testing.assert_array_equal(left[np.array([5, 3, 47])][:, 0], [6, 4, 49])
        monkeypatch.setattr(shuffled, "MOST_LOADED", 3 * 7 * few)
        parts = list(left.epoch(np.random.default_rng(0), 4, 12))
        seen = np.concatenate(parts)[:, 0]
        np.testing.assert_array_equal(np.sort(seen), np.delete(np.arange(50), [3, 30]))
        assert (seen != np.sort(seen)).any()
        np.testing.assert_array_equal(
            np.concatenate(list(left.read()))[:, 0], np.delete(np.arange(50), [3, 30])
        )


TWO_DEVICES = """
import sys
import jax, numpy as np
from tests.vae.autoencoders import DATA, fitted
assert len(jax.devices()) == 2
np.save(sys.argv[1], fitted(n_devices=2).transform(DATA.target))
"""


@pytest.mark.slow  # SVI has the same test
def test_two_devices_give_what_one_gives(tmp_path: Path) -> None:
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    run = subprocess.run(
        [sys.executable, "-c", TWO_DEVICES, str(tmp_path / "found.npy")],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XLA_FLAGS": flags},
    )
    assert run.returncode == 0, run.stderr
    found = np.load(tmp_path / "found.npy")
    np.testing.assert_allclose(found, fitted(n_devices=1).transform(DATA.target), atol=1e-3)
