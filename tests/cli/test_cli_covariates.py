"""Covariates on the command line: --covariate, and what commands do with them afterwards."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run as run_command

FEATURES = list("abcdef")


class Said(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        code = run_command(list(arguments))
        return Said(code, *capsys.readouterr())

    return call


Run = Callable[..., Said]


@pytest.fixture
def table(tmp_path: Path) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n, group = 90, np.repeat(["case", "control"], [50, 40])
    age, sex = (50 + 10 * rng.normal(size=n)).round(1), rng.choice(["f", "m"], n)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 6)) + 0.5 * rng.normal(size=(n, 6))
    X += np.outer(age / 10, rng.normal(size=6)) + np.outer(sex == "m", np.ones(6))
    X[:50] += rng.normal(size=(50, 1)) @ (2.0 * rng.normal(size=(1, 6)))
    found = pd.DataFrame(X, columns=FEATURES).assign(group=group, age=age, sex=sex)
    found.to_csv(tmp_path / "people.csv", index=False)
    return found


FIT = "fit people.csv --by group --target case --n-target 1 --n-shared 2 --covariate age"


def test_a_model_with_covariates_is_the_one_of_python(
    run: Run, table: pd.DataFrame, tmp_path: Path
) -> None:
    found = run(*f"{FIT} --covariate sex --resamples 0 --bootstrap 0 --json".split())
    assert found.code == 0, found.err
    assert json.loads(found.out)["covariates"] == ["age", "sex"]
    target, background = (table[table.group == name] for name in ("case", "control"))
    known: dict[str, Any] = {
        "covariates": target[["age", "sex"]],
        "background_covariates": background[["age", "sex"]],
    }
    model: Any = clvm.ContrastiveLVM(1, 2).fit(
        target[FEATURES], background=background[FEATURES], **known
    )
    loaded = clvm.load_model(tmp_path / "model.clvm")
    assert np.allclose(loaded.covariate_effects_, model.covariate_effects_, atol=1e-6)
    options = ("--where", "group=case", "--remove-covariates")
    given = run("denoise", "model.clvm", "people.csv", *options)
    assert given.code == 0, given.err
    removed = pd.read_csv(io.StringIO(given.out))[FEATURES]
    expected = model.denoise(
        target[FEATURES], covariates=target[["age", "sex"]], remove_covariates=True
    )
    assert np.allclose(removed, expected, atol=1e-5)
    page = run(*["report", "model.clvm", "--yes", "-o", "page.html"])
    assert page.code == 0, page.err


def test_networks_have_covariates_too(run: Run, table: pd.DataFrame, tmp_path: Path) -> None:
    networks = "--model vae:hidden_layer_sizes=4,max_epochs=3,refine_steps=0"
    found = run(*f"{FIT} {networks} --resamples 0 --bootstrap 0 --json".split())
    assert found.code == 0, found.err
    target = table[table.group == "case"]
    model = clvm.load_model(tmp_path / "model.clvm")
    expected = model.transform(target[FEATURES], covariates=target[["age"]])
    given = run("transform", "model.clvm", "people.csv", "--where", "group=case")
    assert given.code == 0, given.err
    latents = pd.read_csv(io.StringIO(given.out)).filter(like="target").to_numpy()
    assert np.allclose(latents[:, 0], expected[:, 0], atol=1e-5)
    page = run(*["report", "model.clvm", "--yes", "-o", "page.html"])
    assert page.code == 0, page.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sex": "x"}, "has ['x'] in 'sex', but the fit had ['f', 'm'] only"),
        ({"age": "old"}, "has 'old' in row 1, but had numbers in the fit"),
        ({"age": None}, "column 'age' of new.csv is empty in row 1"),
    ],
)
def test_new_rows_without_known_covariates_are_refused(
    run: Run, table: pd.DataFrame, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    fitted = run(*f"{FIT} --covariate sex --resamples 0 --bootstrap 0".split())
    assert fitted.code == 0, fitted.err
    table.assign(**change).to_csv(tmp_path / "new.csv", index=False)
    found = run(*["transform", "model.clvm", "new.csv"])
    assert found.code == 2
    assert words in found.err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--covariate nothing", "no column 'nothing'"),
        ("--covariate group", "'group[control]' that the sets determine"),
    ],
)
def test_wrong_covariates_are_refused(
    run: Run, table: pd.DataFrame, options: str, words: str
) -> None:
    found = run(*f"{FIT} {options} --resamples 0".split())
    assert found.code == 2
    assert words in found.err
    assert "age" in table
