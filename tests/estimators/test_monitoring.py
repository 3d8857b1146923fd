"""Charts of new rows: their distribution for normal rows, alarms for others; likelihood ratios."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2, kstest

import contrastive_lvm as clvm
from contrastive_lvm.cli.main import run
from contrastive_lvm.estimators.monitoring import (
    NormalRows,
    _as_complete,
    _of_log_tail,
    chart,
    limits,
)

RNG = np.random.default_rng(0)
D = 12
S, W = RNG.normal(size=(D, 3)), np.where(np.arange(D) < 4, 3.0, 0.0)[:, None]
PSI, MEAN = RNG.uniform(0.5, 2.0, D), RNG.normal(size=D)
NORMAL = NormalRows(MEAN, PSI, S, W)


def normal_rows(n: int, rng: np.random.Generator) -> np.ndarray:
    noise = np.sqrt(PSI) * rng.standard_normal((n, D))
    return np.asarray(MEAN + rng.standard_normal((n, 3)) @ S.T + noise)


def faulty_rows(n: int, rng: np.random.Generator) -> np.ndarray:
    return normal_rows(n, rng) + rng.standard_normal((n, 1)) @ W.T


def fitted(n: int = 400) -> clvm.ContrastiveLVM:
    rng = np.random.default_rng(1)
    model = clvm.ContrastiveLVM(1, 3, likelihood=clvm.Gaussian(noise="feature"))
    return model.fit(faulty_rows(n, rng), background=normal_rows(n, rng))


def test_charts_have_their_laws() -> None:
    rows = normal_rows(4000, np.random.default_rng(2))
    found = chart(rows, NORMAL)
    for values, degrees in zip(found[:3], (1, 3, D - 3), strict=True):
        assert kstest(values, "chi2", (degrees,)).pvalue > 1e-3
    rates = [
        np.mean(values > limit)
        for values, limit in zip(found[:3], limits(NORMAL, 0.03), strict=True)
    ]
    np.testing.assert_allclose(rates, 0.01, atol=0.006)
    rows[np.random.default_rng(3).random(rows.shape) < 0.2] = np.nan
    found = chart(rows, NORMAL)
    for values, degrees in zip(found[:3], (1, 3, D - 3), strict=True):
        assert kstest(values[values > 0], "chi2", (degrees,)).pvalue > 1e-3


def test_charts_agree_with_dense_matrices() -> None:
    rows = faulty_rows(5, np.random.default_rng(4))
    found, d = chart(rows, NORMAL), rows - MEAN
    whole = d @ np.linalg.inv(S @ S.T + np.diag(PSI))
    np.testing.assert_allclose(found.contributions, d * whole)
    np.testing.assert_allclose(found.shared_t2 + found.spe, (d * whole).sum(axis=1))
    L = np.hstack([W, S]) / np.sqrt(PSI)[:, None]
    V = np.linalg.inv(L.T @ L)
    t = (d / np.sqrt(PSI)) @ L @ V
    np.testing.assert_allclose(found.t2, t[:, 0] ** 2 / V[0, 0])
    z = (d / PSI) @ S @ np.linalg.inv(S.T @ (S / PSI[:, None]))
    spread = np.eye(3) + np.linalg.inv(S.T @ (S / PSI[:, None]))
    np.testing.assert_allclose(found.shared_t2, (z * np.linalg.solve(spread, z.T).T).sum(axis=1))


def test_false_alarms_and_detection() -> None:
    model, rng = fitted(), np.random.default_rng(5)
    new = normal_rows(4000, rng)
    assert 0.003 < model.monitor(new).alarms.mean() < 0.02
    heavy = MEAN + 3.0 * (new - MEAN) * rng.exponential(size=(4000, 1))
    assert model.monitor(heavy).alarms.mean() > 0.3
    calibrated = model.monitor(heavy[:2000], reference=heavy[2000:])
    assert 0.002 < calibrated.alarms.mean() < 0.022
    faulty = model.monitor(faulty_rows(500, rng))
    assert faulty.alarms.mean() > 0.5
    top = np.argsort(-faulty.contributions[faulty.alarms].mean(axis=0))[:4]
    assert set(top) == {0, 1, 2, 3}


def test_normal_rows_vary_as_the_background_does(tmp_path: Path) -> None:
    def rows(n: int, width: float) -> np.ndarray:
        noise = np.sqrt(PSI) * rng.standard_normal((n, D))
        return np.asarray(MEAN + width * rng.standard_normal((n, 3)) @ S.T + noise)

    rng = np.random.default_rng(10)
    wide, background = rows(600, 3.0), rows(600, 1.0)
    likelihood = clvm.Gaussian(noise="feature")
    model = clvm.ContrastiveLVM(0, 3, likelihood=likelihood).fit(wide, background=background)
    alone = clvm.ContrastiveLVM(0, 3, likelihood=likelihood).fit(
        rows(600, 1.0), background=background
    )
    new, wider = rows(3000, 1.0), rows(3000, 2.0)
    found, expected = model.monitor(wider), alone.monitor(wider)
    rate = np.mean(found.shared_t2 > found.shared_t2_limit)
    assert rate > 0.2  # .007 where both sets are said to vary alike
    assert rate == pytest.approx(np.mean(expected.shared_t2 > expected.shared_t2_limit), abs=0.05)
    assert 0.003 < model.monitor(new).alarms.mean() < 0.025
    model.save(tmp_path / "m.clvm")
    again = clvm.load_model(tmp_path / "m.clvm")
    np.testing.assert_array_equal(again.monitor(new).shared_t2, model.monitor(new).shared_t2)
    turned = model.rotate("varimax", block="shared").monitor(new)
    np.testing.assert_allclose(turned.shared_t2, model.monitor(new).shared_t2, rtol=1e-8)
    some = np.where(rng.random(background.shape) < 0.1, np.nan, background)
    missing = clvm.ContrastiveLVM(0, 3, likelihood=likelihood).fit(wide, background=some)
    np.testing.assert_allclose(
        missing.normal_components_.T @ missing.normal_components_,
        model.normal_components_.T @ model.normal_components_,
        atol=0.6,
    )


def test_the_ratio_of_likelihoods_tells_rows_of_the_target() -> None:
    model, rng = fitted(), np.random.default_rng(6)
    normal, faulty = normal_rows(500, rng), normal_rows(500, rng)
    faulty += np.where(rng.random((500, 1)) < 0.5, -2.0, 2.0) @ W.T
    ratio = model.enrichment(faulty)[:, None] > model.enrichment(normal)
    assert ratio.mean() > 0.99
    expected = model.score_samples(faulty) - model.score_samples(faulty, of="background")
    np.testing.assert_array_equal(model.enrichment(faulty), expected)


def test_bad_questions_are_refused() -> None:
    model = fitted(60)
    rows = normal_rows(30, np.random.default_rng(7))
    for alpha in (0.0, 1.0, "x"):
        with pytest.raises(ValueError, match="alpha="):
            model.monitor(rows, alpha=alpha)  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"reference has 30 rows, but alpha=0\.01 needs at least 99"
    ):
        model.monitor(rows, reference=rows)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names, rng = [f"s{i}" for i in range(D)], np.random.default_rng(8)
    paths = {}
    for name, rows in (("bad", faulty_rows(150, rng)), ("good", normal_rows(150, rng))):
        paths[name] = str(tmp_path / f"{name}.csv")
        pd.DataFrame(rows.round(4), columns=names).to_csv(paths[name], index=False)
    model, picture = str(tmp_path / "m.clvm"), tmp_path / "charts.svg"
    sizes = ["--n-target", "1", "--n-shared", "3", "--resamples", "0", "--bootstrap", "0"]
    command = ["fit", paths["bad"], paths["good"], *sizes, "--scale", "standard", "-o", model]
    assert run(command) == 0
    capsys.readouterr()
    assert run(["score", model, paths["bad"], "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = clvm.load_model(model).enrichment(pd.read_csv(paths["bad"]))
    np.testing.assert_allclose(np.ravel(found["values"]), expected)
    options = ["--reference", paths["good"], "--contributions", "--plot", str(picture)]
    assert run(["monitor", model, paths["bad"], *options, "--json"]) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert found["columns"][:5] == ["t2", "shared_t2", "spe", "alarm", "contribution_s0"]
    assert "signals     " in said.err
    assert picture.read_text().startswith("<?xml")
    assert run(["monitor", model, paths["bad"], "--alpha", "2"]) == 2
    assert "--alpha=2" in capsys.readouterr().err


def test_statistics_of_incomplete_rows_far_out_are_numbers() -> None:
    degrees = ((3, 8), (1, 2), (8, 30), (400, 1000), (999, 1000))
    for k, whole in degrees:
        tails = 10.0 ** -np.arange(270.0, 300.0, 4.0)
        values = np.append(chi2.isf(tails, k), chi2.isf(1e-300, k) * np.array([1.1, 2, 5, 1e6]))
        found = _as_complete(values, k, whole)
        assert np.isfinite(found).all()
        assert (np.diff(found) > np.diff(values)).all()  # more degrees, and the same tail
        np.testing.assert_allclose(found[:8], chi2.isf(tails, whole), rtol=1e-6)
        exact = chi2.isf(1e-280, whole)
        assert _of_log_tail(np.log(np.array([1e-280])), whole) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("value", [1e160, 1e300, -1e308])
def test_rows_whose_squares_overflow_are_refused(value: float) -> None:
    model, rows = fitted(100), normal_rows(200, np.random.default_rng(1))
    far = rows.copy()
    far[0, 0] = value
    with pytest.raises(ValueError, match=r"^X contains values whose squares overflow"):
        model.monitor(far)
    with pytest.raises(ValueError, match=r"^reference contains values whose squares overflow"):
        model.monitor(rows, reference=far)
    far[0, 1] = np.nan
    with pytest.raises(ValueError, match=r"^X contains values whose squares overflow"):
        model.monitor(far)
