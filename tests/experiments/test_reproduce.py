"""The paper's experiments, small, from end to end; their full form is `make reproduce`."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from contrastive_lvm.cli.main import run
from contrastive_lvm.cli.reproduce import EXPERIMENTS
from contrastive_lvm.datasets.download import BMMC
from contrastive_lvm.experiments import NAMES, Claim, Outcome, SeedSpread, reproduce
from contrastive_lvm.experiments.markdown import page
from tests.datasets.published_files import isolate, matrix_market, put, tarred, zipped

NEEDS = {
    "mice": "mice_protein/Data_Cortex_Nuclear.csv",
    "rnaseq": "kang_pbmc/kang_pbmc_allgenes_csr.npz",
    "sensors": "daily_sports/daily_sports_subject1.npz",
    "digits": "grass/grass_images.npz",
}
Capture = pytest.CaptureFixture[str]


def needs_data(name: str) -> None:
    if name not in NEEDS:
        return
    home = os.environ.get("CONTRASTIVE_LVM_DATA")
    if home is None or not (Path(home) / NEEDS[name]).is_file():
        pytest.skip(f"{NEEDS[name]} is not in CONTRASTIVE_LVM_DATA")
    if name == "digits":
        pytest.importorskip("jax", reason="the extra jax is not installed")


LONG = pytest.param("digits", marks=pytest.mark.slow)  # it compiles for half a minute


@pytest.mark.parametrize("name", [LONG if name == "digits" else name for name in NAMES])
def test_every_experiment_runs_from_end_to_end(name: str) -> None:
    needs_data(name)
    outcome = reproduce(name, quick=True)
    assert outcome.name == name
    assert outcome.table
    assert len({tuple(row) for row in outcome.table}) == 1
    assert all(isinstance(figure, Figure) for figure in outcome.figures.values())
    assert outcome.figures
    assert outcome.notes
    text = page([outcome], "images/")
    assert f"## {outcome.title}" in text
    for figure in outcome.figures:
        assert f"(images/{name}_{figure}.png)" in text
    json.dumps(outcome.facts(), allow_nan=False)
    if name in ("synthetic", "generative", "outliers", "mice"):  # the others are too small to show
        assert outcome.met, [str(claim) for claim in outcome.claims]


def test_the_command_writes_pictures_numbers_and_text(tmp_path: Path, capsys: Capture) -> None:
    assert run(["reproduce", "generative", "--quick", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "shared dimensions found" in out
    assert "met: least ARI" in out
    assert "NOT MET" not in out
    facts = json.loads((tmp_path / "generative.json").read_text(encoding="utf-8"))
    assert facts["claims"][0]["met"]
    assert facts["seconds"] > 0
    assert facts["table"][2]["shared dimensions found"]["values"] == [8.0, 8.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "generative.json",
        "generative_latents.png",
    ]


def test_all_writes_one_page_and_prints_one_list(tmp_path: Path, capsys: Capture) -> None:
    skipped = [name for name in NAMES if name not in ("synthetic", "generative")]
    words = ["reproduce", "all", "--quick", "--json", "--output", str(tmp_path)]
    assert run([*words, *(word for name in skipped for word in ("--skip", name))]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert [facts["name"] for facts in printed] == ["synthetic", "generative"]
    text = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert text.count("\n## ") == 2
    assert "(synthetic_latents.png)" in text
    assert "| met |" in text


def test_what_is_missed_is_said_and_ends_with_1(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    missed = Outcome(
        "generative",
        "title",
        "data",
        [{"method": "one", "ARI": SeedSpread((0.25, 0.5))}],
        [Claim("It does better.", "ARI", 0.25, 0.9), Claim("No.", "ARI", 0.5, 1.0, at_least=False)],
        {},
        ["a note"],
    )
    monkeypatch.setattr("contrastive_lvm.experiments.reproduce", lambda *_, **__: missed)
    assert run(["reproduce", "generative", "--output", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "NOT MET: ARI 0.25 (at least 0.9)" in out
    assert "0.38 (0.25 to 0.50)" in out
    assert "**not met**" in page([missed])


def test_names_are_known_to_the_command_and_others_refused(tmp_path: Path, capsys: Capture) -> None:
    assert EXPERIMENTS == NAMES
    with pytest.raises(ValueError, match="name='rice' is not an experiment"):
        reproduce("rice")
    for words in (["rice"], ["all", "--skip", "rice"]):
        assert run(["reproduce", *words, "--output", str(tmp_path / "new")]) == 2
        assert "'rice' is not an experiment; use all, or" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_missing_file_is_one_sentence(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setenv("CONTRASTIVE_LVM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pooch = pytest.importorskip("pooch", reason="the extra data is not installed")
    monkeypatch.setattr(pooch, "retrieve", offline)
    assert run(["reproduce", "mice", "--output", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err.splitlines()
    assert "Data_Cortex_Nuclear.csv" in err[-1]
    words = ["reproduce", "all", "--quick", "--output", str(tmp_path / "out")]
    others = [name for name in NAMES if name not in ("generative", "mice")]
    assert run([*words, *(word for name in others for word in ("--skip", name))]) == 1
    assert "clvm: mice was left out: mice_protein/Data_Cortex" in capsys.readouterr().err
    text = (tmp_path / "out" / "index.md").read_text(encoding="utf-8")
    assert "Data drawn from the model" in text


@pytest.mark.parametrize(
    ("values", "text"),
    [((1.0, 1.0), "1"), ((8, 9, 9), "8.7 (8 to 9)"), ((0.5, 0.25), "0.38 (0.25 to 0.50)")],
)
def test_spreads_read_well(values: tuple[float, ...], text: str) -> None:
    assert str(SeedSpread(values)) == text


def test_the_papers_own_sensors_are_taken_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten short logs in the real format, two activities apart in the first sensors."""
    folder, rng = isolate(tmp_path, monkeypatch), np.random.default_rng(0)
    members = {}
    for subject in range(1, 11):
        labels = np.repeat([3, 8, 9], 300)
        signals = 0.3 * rng.standard_normal((len(labels), 23))
        signals[:, :12] += 2.0 * (labels[:, None] == 9)
        rows = np.column_stack([signals, labels])
        text = "\n".join("\t".join(f"{value:g}" for value in row) for row in rows)
        members[f"MHEALTHDATASET/mHealth_subject{subject}.log"] = text.encode()
    put(folder, "mhealth/mhealth+dataset.zip", zipped(members))
    outcome = reproduce("sensors", quick=True)
    assert "mHealth" in outcome.data
    assert "23 signals" in outcome.data
    assert all(claim.met for claim in outcome.claims[1:])  # the activities are apart


def test_the_papers_own_cells_are_taken_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three archives in the real format, the second with other counts of some genes."""
    folder, rng = isolate(tmp_path, monkeypatch), np.random.default_rng(0)
    genes = "".join(f"ENSG{i}\tG{i}\n" for i in range(70)).encode()
    for i, name in enumerate(BMMC):
        rates = np.where(np.arange(70) < 20, 9.0 if i == 1 else 1.0, 4.0)
        counts = rng.poisson(rates * rng.gamma(5.0, 0.2, (80, 70)))
        barcodes = "".join(f"cell{j}-1\n" for j in range(80)).encode()
        where = "filtered_matrices_mex/hg19/"
        members = {"matrix.mtx": matrix_market(counts), "genes.tsv": genes}
        members |= {"barcodes.tsv": barcodes}
        raw = tarred({where + key: value for key, value in members.items()})
        put(folder, f"bmmc/{name}_filtered_gene_bc_matrices.tar.gz", raw)
    outcome = reproduce("rnaseq", quick=True)
    assert outcome.data.startswith("Bone marrow (Zheng 2017): 144 + 72 of the cells, 60 genes")
