"""A model that `clvm fit` has written scales the rows that it is given in Python."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
from contrastive_lvm.io.model_files import read_model

DATA = clvm.datasets.make_contrastive(60, 50, n_features=5, n_shared=1, random_state=0)
NAMES = list("abcde")
UNITS = np.array([1.0, 1e3, 1e-3, 50.0, 7.0])


def rows() -> pd.DataFrame:
    values = np.concatenate([DATA.target, DATA.background]) * UNITS + 10.0 * UNITS
    values[3, 1] = np.nan
    frame = pd.DataFrame(values, columns=NAMES)
    return frame.assign(group=["case"] * 60 + ["control"] * 50, number=range(110))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("units")
    rows().to_csv(folder / "rows.csv", index=False)
    command = ["fit", str(folder / "rows.csv"), "--by", "group", "--target", "case"]
    command += ["--scale", "standard", "--n-target", "1", "--n-shared", "1", "--resamples", "0"]
    assert run([*command, "--bootstrap", "0", "-o", str(folder / "m.clvm")]) == 0
    return folder / "m.clvm"


def scaled(path: Path) -> pd.DataFrame:
    center, spread = rows()[NAMES].mean(), rows()[NAMES].std(ddof=0)
    return (rows()[NAMES] - center) / spread


def test_rows_are_scaled_by_the_model(path: Path) -> None:
    model, bare = clvm.load_model(path), read_model(path)[0]
    ours, theirs = rows(), scaled(path)  # with columns that are no features
    before = ours.copy()
    np.testing.assert_allclose(model.transform(ours), bare.transform(theirs), rtol=1e-9)
    np.testing.assert_allclose(model.transform(ours[NAMES[::-1]]), bare.transform(theirs))
    latents = model.latents(ours, of="background")
    np.testing.assert_allclose(latents.shared, bare.latents(theirs, of="background").shared)
    for name in ("impute", "denoise", "reconstruct"):
        expected = getattr(bare, name)(theirs) * rows()[NAMES].std(ddof=0).to_numpy()
        expected += rows()[NAMES].mean().to_numpy()
        np.testing.assert_allclose(getattr(model, name)(ours), expected, rtol=1e-9)
    pd.testing.assert_frame_equal(ours, before)
    filled, std = model.impute(ours, return_std=True)
    np.testing.assert_allclose(filled[0], ours[NAMES].to_numpy()[0])
    assert 0.01 * UNITS[1] < std[3, 1] < 10.0 * UNITS[1]


def test_densities_are_those_of_the_data(path: Path) -> None:
    """The density of x is that of (x - center) / scale over the product of scales."""
    model, bare = clvm.load_model(path), read_model(path)[0]
    logs = np.log(rows()[NAMES].std(ddof=0).to_numpy())
    volume = np.where(rows()[NAMES].isna(), 0.0, logs).sum(axis=1)
    expected = bare.score_samples(scaled(path)) - volume
    np.testing.assert_allclose(model.score_samples(rows()), expected, rtol=1e-9)
    drawn = model.sample(4000, random_state=0)
    np.testing.assert_allclose(drawn.mean(axis=0), rows()[NAMES][:60].mean(), rtol=0.2)


@pytest.mark.filterwarnings("ignore:n_shared=")
def test_a_model_is_saved_with_its_units(path: Path, tmp_path: Path) -> None:
    model = clvm.load_model(path)
    model.save(tmp_path / "again.clvm")
    again = clvm.load_model(tmp_path / "again.clvm")
    np.testing.assert_array_equal(again.transform(rows()), model.transform(rows()))
    assert again.preparation_.features == NAMES
    refitted = again.fit(rows()[NAMES][:60], background=rows()[NAMES][60:])
    assert not hasattr(refitted, "preparation_")


def test_bootstrap_and_report_scale_rows(path: Path, tmp_path: Path) -> None:
    model = clvm.load_model(path)
    target, background = rows()[:60], rows()[60:]
    found = clvm.bootstrap(model, target, background=background, n_resamples=20, random_state=0)
    assert (
        np.max(np.asarray(found.target_components_std, dtype=float)) < 1.0
    )  # in units of scaled rows
    model.report(tmp_path / "r.html", target, background=background)
    assert (tmp_path / "r.html").exists()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_rows_out_of_core_are_scaled(path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", rows()[NAMES].to_numpy())
    model = clvm.load_model(path)
    held = np.load(tmp_path / "rows.npy", mmap_mode="r")
    np.testing.assert_allclose(model.transform(held), model.transform(rows()), rtol=1e-9)
    np.testing.assert_allclose(model.impute(held), model.impute(rows()), rtol=1e-9)


def test_an_array_of_three_dimensions_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Reshape your data with \.reshape\(4, -1\) if the first"):
        clvm.ContrastiveLVM(1, 1).fit(np.ones((4, 5, 2)), background=DATA.background)
