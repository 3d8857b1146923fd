"""`clvm plot`: every plot as a picture of the size and format that was asked for."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
from contrastive_lvm.cli.plot import PLOTS

Capture = pytest.CaptureFixture[str]
FITS = {
    "plain": [],
    "heavy": ["--likelihood", "student_t", "--target-prior", "horseshoe"],
    "subgroups": ["--subgroups", "2"],
}
MODEL_OF = {"scales": "heavy", "weights": "heavy", "subgroups": "subgroups"}


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plot")
    data = clvm.datasets.make_contrastive(40, 30, n_features=6, n_shared=1, random_state=0)
    frame = pd.DataFrame(np.vstack([data.target, data.background]), columns=list("abcdef"))
    frame.insert(0, "group", ["case"] * 40 + ["control"] * 30)
    frame.insert(1, "sex", np.resize(["female", "male"], 70))
    frame.to_csv(folder / "all.csv", index=False)
    for name, options in FITS.items():
        command = ["fit", str(folder / "all.csv"), "--by", "group", "--target", "case"]
        command += ["--n-shared", "1", "-o", str(folder / f"{name}.clvm"), *options]
        assert run([*command, "--bootstrap", "0", "--resamples", "0"]) == 0
    return folder


@pytest.mark.parametrize("kind", [kind for kind in PLOTS if kind != "history"])
def test_every_plot_is_written_at_its_size(kind: str, fitted: Path) -> None:
    model, place = fitted / f"{MODEL_OF.get(kind, 'plain')}.clvm", fitted / f"{kind}.png"
    options = ["--yes", "--colour", "sex", "--size", "12.7x10.16", "--dpi", "50", "-o", str(place)]
    assert run(["plot", kind, str(model), *options]) == 0
    with Image.open(place) as picture:
        assert picture.size == (250, 200)
        assert len(picture.convert("L").getcolors() or []) > 10  # something was drawn


@pytest.mark.parametrize(("ending", "first"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_formats_for_a_paper(ending: str, first: bytes, fitted: Path, capsys: Capture) -> None:
    place = fitted / f"figure.{ending}"
    command = ["plot", "latents", str(fitted / "plain.clvm"), "--yes", "--title", "Figure 1"]
    assert run([*command, "-o", str(place), "--json"]) == 0
    assert place.read_bytes().startswith(first)
    assert '"plot": "latents"' in capsys.readouterr().out


def test_text_that_does_not_fit_is_said(fitted: Path, capsys: Capture) -> None:
    command = ["plot", "variance", str(fitted / "plain.clvm"), "--yes"]
    command += ["-o", str(fitted / "small.png"), "--size", "4x3"]
    assert run(command) == 0
    said = capsys.readouterr().err
    assert "warning: --size=4x3 cuts text off; try " in said
    better = said.split("try ")[1].split()[0].rstrip(".")
    assert run([*command[:-1], better]) == 0
    assert "cuts text off" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["pie", "plain.clvm"], "PLOT=pie is unknown"),
        (["history", "plain.clvm"], "has no history_"),
        (["weights", "plain.clvm"], "fit it with likelihood='student_t'"),
        (
            ["latents", "plain.clvm", "--color", "age"],
            "has no column 'age'; these describe rows",
        ),
        (["latents", "plain.clvm", "--size", "9"], "--size=9 is not a width and a height"),
        (["latents", "plain.clvm", "--size", "0x5"], "--size=0x5 is not a width and a height"),
        (["latents", "plain.clvm", "-o", "figure.docx"], "is not a picture"),
        (["loadings", "plain.clvm", "--dimension", "9"], "dimension"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    arguments: list[str],
    sentence: str,
    fitted: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Capture,
) -> None:
    monkeypatch.chdir(fitted)
    before = sorted(fitted.iterdir())
    assert run(["plot", *arguments, "--yes"]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1 or "read " in said
    assert sorted(fitted.iterdir()) == before
