"""Where files of real data come from, what is in the real ones, and digits on texture."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contrastive_lvm import datasets
from contrastive_lvm.datasets import download
from contrastive_lvm.datasets.mice_protein import read_mice
from contrastive_lvm.datasets.wearable_sensors import read_mhealth
from tests.datasets.published_files import isolate, put, real

NAME = "folder/words.txt"
CONTENT = b"some words\n"
ADDRESS = "https://example.org/words.txt"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Network:
    """What stands in for the downloads of pooch: what it gives, and what it was asked for."""

    def __init__(self) -> None:
        self.gives: bytes | OSError = CONTENT
        self.asked: list[str] = []

    def __call__(self, url: str, output_file: str, *_: object, **__: object) -> None:
        self.asked.append(url)
        if isinstance(self.gives, OSError):
            raise self.gives
        Path(output_file).write_bytes(self.gives)


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Network:
    """An empty data folder and cache, one known file, and a network that is none."""
    pooch = pytest.importorskip("pooch", reason="the extra data is not installed")
    network = Network()
    monkeypatch.setattr(
        pooch.HTTPDownloader, "__call__", lambda _, *words, **more: network(*words, **more)
    )
    monkeypatch.setattr(pooch, "os_cache", lambda project: tmp_path / "cache" / project)
    monkeypatch.setattr(download, "SOURCES", {NAME: download.DataFile(ADDRESS, SHA256)})
    monkeypatch.setenv("CONTRASTIVE_LVM_DATA", str(tmp_path / "data"))
    return network


def test_data_folder_comes_before_the_cache(network: Network, tmp_path: Path) -> None:
    cached = put(tmp_path, f"cache/contrastive-lvm/{NAME}", CONTENT)
    assert download.find(NAME) == cached
    own = put(tmp_path, f"data/{NAME}", CONTENT)
    assert download.find(NAME) == own
    assert network.asked == []


def test_what_is_not_here_is_downloaded_once(network: Network, tmp_path: Path) -> None:
    path = download.find("folder/made_by_hand.npz", NAME)
    assert path == tmp_path / "cache" / "contrastive-lvm" / NAME
    assert path.read_bytes() == CONTENT
    assert download.find(NAME) == path
    assert network.asked == [ADDRESS]
    made = put(tmp_path, "data/folder/made_by_hand.npz", b"arrays")
    assert download.find("folder/made_by_hand.npz", NAME) == made


def test_wrong_checksums_are_a_sentence(network: Network, tmp_path: Path) -> None:
    network.gives = b"a page that says please log in"
    with pytest.raises(ValueError, match=f"{ADDRESS} returned a file without the sha256 {SHA256}"):
        download.find(NAME)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    put(tmp_path, f"data/{NAME}", CONTENT + b"!")
    with pytest.raises(ValueError, match=rf"words\.txt has the sha256 .* has {SHA256}; delete it"):
        download.find(NAME)


def test_without_a_network_the_sentence_says_what_to_put_where(
    network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.gives = ConnectionError("Max retries exceeded\nand more")
    where = tmp_path / "data" / NAME
    with pytest.raises(FileNotFoundError) as caught:
        download.find(NAME)
    assert str(caught.value) == (
        f"{NAME} was not found and could not be downloaded (ConnectionError); "
        f"download it from {ADDRESS} and put it at {where}."
    )
    monkeypatch.delenv("CONTRASTIVE_LVM_DATA")
    with pytest.raises(FileNotFoundError, match=f"as {NAME} and set CONTRASTIVE_LVM_DATA to that"):
        download.find(NAME)


def test_without_pooch_the_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(download, "import_module", missing)
    monkeypatch.setattr(download, "SOURCES", {NAME: download.DataFile(ADDRESS, SHA256)})
    monkeypatch.setenv("CONTRASTIVE_LVM_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"pip install 'contrastive-lvm\[data\]', or down"):
        download.find(NAME)
    own = put(tmp_path, NAME, CONTENT)
    assert download.find(NAME) == own


@pytest.mark.parametrize(
    ("fetch", "name"),
    [
        (datasets.fetch_mice_protein, "mice_protein/Data_Cortex_Nuclear.csv"),
        (datasets.fetch_mhealth, "mhealth/mhealth+dataset.zip"),
        (datasets.fetch_daily_sports, "daily_sports/daily+and+sports+activities.zip"),
        (datasets.fetch_kang_pbmc, "kang_pbmc/GSE96583_RAW.tar"),
        (datasets.fetch_bmmc, "bmmc/aml027_pre_transplant_filtered_gene_bc_matrices.tar.gz"),
    ],
)
def test_every_fetcher_says_what_it_needs(
    fetch: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    isolate(tmp_path, monkeypatch)
    with pytest.raises(FileNotFoundError) as caught:
        fetch()
    assert str(caught.value) == (
        f"{name} was not found and could not be downloaded (ConnectionError); "
        f"download it from {download.SOURCES[name].address} and put it at {tmp_path / name}."
    )


def test_real_mice() -> None:
    path = real("mice_protein", "Data_Cortex_Nuclear.csv")
    assert round(100 * read_mice(path).isna().iloc[:, 1:78].to_numpy().mean(), 2) == 1.68
    data = datasets.fetch_mice_protein()
    assert data.target.shape == (270, 77)
    assert data.background.shape == (135, 77)
    assert np.bincount(data.target_labels).tolist() == [135, 135]
    assert (np.unique(data.target_mice, return_counts=True)[1] == 15).all()
    assert len(np.unique(data.background_mice)) == 9
    assert data.feature_names[0] == "DYRK1A_N"
    for mouse in np.unique(data.target_mice):
        assert len(set(data.target_labels[data.target_mice == mouse])) == 1


def test_real_mhealth_sample() -> None:
    signals, labels = read_mhealth(real("mhealth", "mHealth_subject1_sample36.log"), 1)
    assert signals.shape == (36, 23)
    assert np.bincount(labels.astype(int)).tolist() == [0] + [3] * 12
    assert signals[0, [0, 3, 9, 11, 17]].tolist() == [-9.7788, 2.6493, 0.0083726, -0.20965, 0.56366]


@pytest.mark.parametrize(
    ("which", "target", "background", "people"),
    [("subject1", [15, 17], 7500, 1), ("pooled8", [15, 18], 12000, 8)],
)
def test_real_sports(which: str, target: list[int], background: int, people: int) -> None:
    real("daily_sports", f"daily_sports_{which}.npz")
    data = datasets.fetch_daily_sports(which)
    assert data.target.shape == (2 * background, 45)
    assert data.background.shape == (background, 45)
    assert np.unique(data.target_labels).tolist() == target
    assert len(np.unique(data.target_subjects)) == people
    assert data.sensor_types.count("mag") == 15
    assert np.isfinite(data.target).all()


def test_real_blood_cells() -> None:
    real("kang_pbmc", "kang_pbmc_500genes.npz")
    data = datasets.fetch_kang_pbmc()
    assert data.target.shape == (1500, 500)
    assert data.background.shape == (500, 500)
    assert np.bincount(data.target_labels).tolist() == [500, 1000]
    stimulated = data.target[data.target_labels == 1, data.feature_names.index("ISG15")]
    assert stimulated.mean() > 10 * data.background[:, data.feature_names.index("ISG15")].mean()
    real("kang_pbmc", "kang_pbmc_allgenes_csr.npz")
    more = datasets.fetch_kang_pbmc(501)
    np.testing.assert_array_equal(more.target_totals, data.target_totals)
    np.testing.assert_array_equal(
        more.target[:, more.feature_names.index("ISG15")],
        data.target[:, data.feature_names.index("ISG15")],
    )


def test_texture_hides_the_digits() -> None:
    data = datasets.make_digits_on_texture(1500, 1200, random_state=0)
    assert data.target.shape == (1500, 256)
    assert data.background.shape == (1200, 256)
    assert (np.bincount(data.target_labels) > 100).all()
    assert data.background.mean() == pytest.approx(0.5, abs=0.02)
    assert data.background.std() == pytest.approx(0.25, rel=0.05)
    texture, both = data.background.var(axis=0).sum(), data.target.var(axis=0).sum()
    assert texture > 2.5 * (both - texture) > 0
    spectrum = np.linalg.eigvalsh(np.cov(data.background.T))[::-1]
    assert spectrum[:20].sum() > 0.98 * spectrum.sum()  # smooth: few dimensions


@pytest.mark.parametrize("spectrum", [0.0, 2.0])
def test_rough_texture_has_its_spectrum(spectrum: float) -> None:
    """Power of the background at frequencies 2 and 6, which does not need all images' contrast."""
    rows = datasets.make_digits_on_texture(2, 1500, spectrum=spectrum, random_state=0).background
    images = rows.reshape(-1, 16, 16)
    window = np.outer(np.hanning(16), np.hanning(16))
    power = np.abs(np.fft.fft2((images - images.mean(axis=(1, 2), keepdims=True)) * window)) ** 2
    mean = power.mean(axis=0)
    ratio = (mean[6, 0] + mean[0, 6]) / (mean[2, 0] + mean[0, 2])
    assert ratio == pytest.approx(3.0**-spectrum, rel=0.3)
    assert rows.mean() == pytest.approx(0.5, abs=0.01)
    assert rows.std() == pytest.approx(0.13, abs=0.02)


def test_texture_and_digits_add_up() -> None:
    faint = datasets.make_digits_on_texture(1800, 5, intensity=1e-9, random_state=3)
    plain = datasets.make_digits_on_texture(1800, 5, intensity=1.0, random_state=3)
    np.testing.assert_array_equal(plain.background, faint.background)
    digits = (plain.target - faint.target).reshape(1800, 8, 2, 8, 2)
    assert digits.min() == pytest.approx(0, abs=1e-8)
    assert digits.max() == pytest.approx(1, abs=1e-8)
    np.testing.assert_allclose(digits[:, :, 1, :, 1], digits[:, :, 0, :, 0], atol=1e-9)
    assert len(np.unique(digits[:1797].round(6).reshape(1797, -1), axis=0)) == 1797
    zero, one = (digits[plain.target_labels == d].mean(axis=0)[4, 0, 4, 0] for d in (0, 1))
    assert zero < 0.1 < one  # the middle of a nought is empty


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ({"n_target": 0}, "n_target=0 must be an integer of at least 1"),
        ({"n_background": 1.5}, "n_background=1.5 must be"),
        ({"intensity": 0.0}, "intensity=0.0 must be a positive number"),
        ({"spectrum": -1}, "spectrum=-1 must be a number from 0 to 8, or None"),
        ({"intensity": np.nan}, "intensity=nan must be a positive number"),
    ],
)
def test_texture_arguments_are_checked(words: Any, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        datasets.make_digits_on_texture(**words)
