"""The report as a file: what it holds, what it escapes, what it refuses."""

import base64
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

import contrastive_lvm as clvm
from contrastive_lvm.report import page_data
from contrastive_lvm.report.advice import diagnostics
from contrastive_lvm.report.encode_arrays import CODES, coded, columns
from contrastive_lvm.report.page import escaped

# Features of `make_subgroups` differ in their variance more than four dimensions can describe.
pytestmark = pytest.mark.filterwarnings("ignore:The noise of")
DATA = clvm.datasets.make_subgroups(60, 50, random_state=0)
KINDS = {"f4": "<f4", "u2": "<u2", "i4": "<i4"}
FLOATS = st.floats(-1e6, 1e6, width=32)


class Reader(HTMLParser):
    """Elements of a page, and the text of its script elements."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self.elements.append(("/script", {}))


def read(path: Path) -> tuple[Reader, dict[str, Any]]:
    reader = Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    data: dict[str, Any] = json.loads(reader.scripts[0])
    return reader, data


def unpacked(packed: dict[str, Any]) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(packed["bytes"]), dtype=KINDS[packed["kind"]])
    return raw.reshape(packed["shape"])


def decoded(packed: dict[str, Any]) -> np.ndarray:
    codes = unpacked(packed).astype(float)
    codes[codes == CODES + 1] = np.nan
    values: np.ndarray = np.array(packed["low"]) + codes * np.array(packed["step"])
    return values


def fitted(**settings: Any) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(2, 4, **settings).fit(DATA.target, background=DATA.background)


def written(tmp_path: Path, model: Any = None, **words: Any) -> dict[str, Any]:
    model = fitted() if model is None else model
    words = {"background": DATA.background} | words
    return read(model.report(tmp_path / "report.html", DATA.target, **words))[1]


def test_the_page_holds_the_numbers_of_the_library(tmp_path: Path) -> None:
    model = fitted()
    data = written(tmp_path, model, labels=DATA.target_labels)
    own, other = model.latents(DATA.target), model.latents(DATA.background, of="background")
    assert own.target_std is not None
    expected: dict[str, Any] = {
        "target": own.target,
        "shared": own.shared,
        "background_shared": other.shared,
        "background_target": model.transform(DATA.background),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(unpacked(data["points"][name]), values, rtol=1e-6)
    assert unpacked(data["points"]["target_std"]).shape == (1, 2)  # complete rows have one
    np.testing.assert_allclose(unpacked(data["points"]["target_std"])[0], own.target_std[7], 1e-6)
    both = np.vstack([model.target_components_, model.shared_components_])
    np.testing.assert_allclose(unpacked(data["loadings"]), both, rtol=1e-6)
    pooled = np.concatenate([DATA.target, DATA.background])
    precision = np.ptp(pooled, axis=0) / CODES
    assert (np.abs(decoded(data["values"]) - pooled) <= 0.51 * precision).all()
    assert data["facts"]["variance"]["target"] == model.target_variance_ratio_.tolist()
    assert data["rows"] == [str(i) for i in range(60)]  # as Python counts
    assert data["features"] == [f"x{i}" for i in range(30)]


def test_gaps_stay_gaps_and_widen_the_latents(tmp_path: Path) -> None:
    gappy = DATA.target.copy()
    gappy[:5, 3:20] = np.nan
    model = clvm.ContrastiveLVM(2, 4).fit(gappy, background=DATA.background)
    data = read(model.report(tmp_path / "r.html", gappy, background=DATA.background))[1]
    np.testing.assert_array_equal(np.isnan(decoded(data["values"])[:60]), np.isnan(gappy))
    stds = unpacked(data["points"]["target_std"])
    expected: Any = model.latents(gappy).target_std
    np.testing.assert_allclose(stds, expected, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, (7, 3), elements=FLOATS | st.just(float("nan"))))
def test_codes_are_within_half_a_step_and_exact_for_whole_numbers(values: np.ndarray) -> None:
    found = decoded(coded(values))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(values))
    seen = ~np.isnan(values)
    spread = np.ptp(values[seen]) if seen.any() else 0.0
    assert (np.abs(found - values)[seen] <= 0.51 * spread / CODES + 1e-9).all()
    whole = np.rint(np.clip(values, -3e4, 3e4))
    np.testing.assert_array_equal(decoded(coded(whole)), whole)


@settings(max_examples=200, deadline=None)
@given(st.text() | st.sampled_from(["</script>", "<!--<script>", "%DATA%", "\u2028", "&lt;"]))
def test_no_text_ends_the_block_of_data(text: str) -> None:
    found = escaped({text: text})
    assert not set("<>&\u2028\u2029") & set(found)
    assert json.loads(found) == {text: text}


EVIL = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "%SCRIPT%", "'\"&"]


def test_nothing_of_the_data_becomes_markup(tmp_path: Path) -> None:
    names = [f"{EVIL[i % 4]}{i}" for i in range(30)]
    target = pd.DataFrame(DATA.target, columns=names, index=EVIL * 15)
    background = pd.DataFrame(DATA.background, columns=names)
    model = clvm.ContrastiveLVM(2, 4).fit(target, background=background)
    plain, _ = read(fitted().report(tmp_path / "a.html", DATA.target, background=DATA.background))
    path = model.report(
        tmp_path / "b.html",
        target,
        background=background,
        labels={EVIL[0]: EVIL * 15},
        title=EVIL[0] + EVIL[2],
    )
    evil, data = read(path)
    assert evil.elements == plain.elements  # not one more
    assert evil.scripts[1] == plain.scripts[1]
    assert data["features"] == names
    assert data["rows"] == EVIL * 15
    assert data["title"] == EVIL[0] + EVIL[2]


UNSEEN = "\ud800\udfff\0\x1b[31m\x85\u202egnp\u2066\r\n"


def test_characters_that_cannot_be_shown_are_replaced(tmp_path: Path) -> None:
    names = [f"{UNSEEN}{i}" for i in range(30)]
    columns, rows = (pd.Index(given, dtype=object) for given in (names, [UNSEEN] * 60))
    target = pd.DataFrame(DATA.target, columns=columns, index=rows)
    background = pd.DataFrame(DATA.background, columns=columns)
    model = clvm.ContrastiveLVM(2, 4).fit(target, background=background)
    labels = {UNSEEN: [UNSEEN] * 60}
    path = model.report(
        tmp_path / "r.html", target, background=background, labels=labels, title=UNSEEN
    )
    data = read(path)[1]
    shown = "\ufffd\ufffd\u2400\u241b[31m\ufffd\ufffdgnp\ufffd\u240d\u240a"
    assert data["features"] == [f"{shown}{i}" for i in range(30)]
    assert data["rows"] == [shown] * 60
    assert data["title"] == shown
    assert (data["columns"][0]["name"], data["columns"][0]["levels"]) == (shown, [shown])
    assert not set(UNSEEN) - set("[31mgnp\r\n") & set(path.read_text(encoding="utf-8"))


def test_the_policy_admits_one_script_and_no_connection(tmp_path: Path) -> None:
    import hashlib

    reader, _ = read(fitted().report(tmp_path / "r.html", DATA.target, background=DATA.background))
    policies = [a["content"] for t, a in reader.elements if "http-equiv" in a]
    digest = base64.b64encode(hashlib.sha256(reader.scripts[1].encode()).digest()).decode()
    assert policies[0] is not None
    assert policies[0].startswith(f"default-src 'none'; script-src 'sha256-{digest}'; style-src")
    addresses = [v for _, a in reader.elements for k, v in a.items() if k in ("src", "href")]
    assert addresses == ["data:,", "#views"]
    script = reader.scripts[1].replace("http://www.w3.org/2000/svg", "")
    assert not any(word in script for word in ("http", "fetch(", "XMLHttp", "innerHTML", "eval"))


def test_the_page_itself_is_small(tmp_path: Path) -> None:
    path = fitted().report(tmp_path / "r.html", DATA.target, background=DATA.background)
    reader, _ = read(path)
    assert path.stat().st_size - len(reader.scripts[0]) < 100_000


def test_annotations_are_numbers_groups_or_text() -> None:
    n = 70
    frame = pd.DataFrame(
        {
            "dose": np.linspace(0, 1, n),
            "batch": np.arange(n) % 3,
            "name": [f"mouse {i}" for i in range(n)],
            "kind": pd.Categorical(["high", "low"] * 35, categories=["low", "high"], ordered=True),
            "seen": [True, False] * 35,
            "mixed": ["a", 1] * 35,
            "part": ["x", None] * 35,
            "whole": pd.array([1, None] * 35, dtype="Int64"),
        }
    )
    found: dict[Any, Any] = {c["name"]: c for c in columns(frame, pd.DataFrame(index=range(5)))}
    kinds = {name: column["kind"] for name, column in found.items()}
    assert kinds == dict.fromkeys(frame, "group") | {"dose": "number", "name": "text"}
    assert found["kind"]["levels"] == ["low", "high"]  # the order of the categories
    assert found["batch"]["levels"] == ["0", "1", "2"]
    assert found["seen"]["levels"] == ["False", "True"]
    codes = unpacked(found["part"]["codes"])
    assert codes.tolist() == [0, -1] * 35 + [-1] * 5
    np.testing.assert_allclose(unpacked(found["dose"]["values"])[:n], frame["dose"], atol=1e-7)
    assert np.isnan(unpacked(found["dose"]["values"])[n:]).all()


def test_rows_of_both_sets_share_annotations(tmp_path: Path) -> None:
    data = written(
        tmp_path,
        labels={"sex": ["f", "m"] * 30, "age": np.arange(60.0)},
        background_labels=pd.DataFrame({"sex": ["m"] * 50}, index=np.arange(50) + 7),
    )
    sex = data["columns"][0]
    assert (sex["name"], sex["levels"]) == ("sex", ["f", "m"])
    assert unpacked(sex["codes"]).tolist() == [0, 1] * 30 + [1] * 50
    assert [c["name"] for c in data["columns"]] == ["sex", "age", "outlyingness (robust std)"]


@pytest.mark.parametrize(
    "model",
    [
        clvm.ContrastiveLVM(1, 1),
        clvm.ContrastiveLVM(3, 2, likelihood="student_t"),
        clvm.ContrastiveLVM(2, "auto"),
        clvm.ContrastiveLVM(2, 2, target_prior=clvm.Horseshoe()),
        clvm.ContrastiveLVM(0, 2),
        clvm.ContrastiveLVM(2, 2, likelihood=clvm.Gaussian(noise="feature")),
        pytest.param(
            clvm.ContrastiveVAE(2, 2, hidden_layer_sizes=(8,), max_epochs=3, random_state=0),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda model: repr(model)[:60],
)
@pytest.mark.filterwarnings("ignore:1 of 30 features have no noise left")
def test_every_model_has_a_report(model: Any, tmp_path: Path) -> None:
    model.fit(DATA.target, background=DATA.background)
    data = written(tmp_path, model)
    assert unpacked(data["points"]["target"]).shape == (60, model.n_target_)
    assert unpacked(data["loadings"]).shape[0] >= model.n_target_
    assert data["diagnostics"]
    assert data["settings"]


def test_sparse_counts_stay_exact(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    target, background = (sparse.csr_matrix(rng.poisson(0.7, (n, 9))) for n in (40, 30))
    model = clvm.ContrastiveLVM(1, 1, likelihood="poisson").fit(target, background=background)
    data = read(model.report(tmp_path / "r.html", target, background=background))[1]
    both = np.concatenate([target.toarray(), background.toarray()])
    np.testing.assert_array_equal(decoded(data["values"]), both)
    assert data["loading_errors"] is None  # nothing was resampled


def test_size_factors_of_ones_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    target, background = (rng.poisson(3.0, (n, 9)) for n in (40, 30))
    model = clvm.ContrastiveLVM(1, 1, likelihood="poisson")
    words: dict[str, Any] = {
        "size_factors": np.linspace(1, 2, 40),
        "background_size_factors": np.ones(30),
    }
    model.fit(target, background=background, **words)
    path = tmp_path / "r.html"
    data = read(model.report(path, target, background=background, **words))[1]
    expected = model.transform(target, size_factors=words["size_factors"])
    np.testing.assert_allclose(unpacked(data["points"]["target"]), expected, rtol=1e-5, atol=1e-6)
    assert data["columns"][0]["name"] == "size factor"
    with pytest.raises(ValueError, match="fitted with size factors of your own"):
        model.report(path, target, background=background)
    with pytest.raises(ValueError, match="background_size_factors=None does not match"):
        model.report(path, target, background=background, size_factors=words["size_factors"])


def test_without_a_background(tmp_path: Path) -> None:
    model = clvm.ContrastiveLVM(2, 0).fit(DATA.target)
    data = read(model.report(tmp_path / "r.html", DATA.target))[1]
    assert data["background_rows"] is None
    assert "background_target" not in data["points"]


def test_large_sets_are_sampled_and_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_data, "MOST_ROWS", 25)
    monkeypatch.setattr(page_data, "MOST_ENTRIES", 500)
    monkeypatch.setattr(page_data, "FEWEST_FEATURES", 6)
    model = fitted()
    data = written(tmp_path, model, labels={"number": [f"n{i}" for i in range(60)]})
    assert len(data["rows"]) == len(set(data["rows"])) == 25
    assert data["facts"]["target"]["rows"] == 60
    names = data["columns"][0]
    assert [names["levels"][c] for c in unpacked(names["codes"])[:25]] == [
        f"n{row}" for row in data["rows"]
    ]
    rows = [int(row) for row in data["rows"]]
    expected = model.transform(DATA.target)[rows]
    np.testing.assert_allclose(unpacked(data["points"]["target"]), expected, rtol=1e-5, atol=1e-6)
    relevant = np.sort(np.argsort(-model.feature_relevance_, kind="stable")[:10])
    assert data["values"]["features"] == relevant.tolist()
    drawn = decoded(data["values"])[:25]
    step = np.array(data["values"]["step"])
    assert (np.abs(drawn - DATA.target[rows][:, relevant]) <= 0.51 * step).all()


def test_words_say_when_little_is_enriched() -> None:
    rng = np.random.default_rng(0)
    points = {
        "target": rng.normal(size=(500, 1)),
        "target_std": np.full((500, 1), 2.0),
        "background_target": rng.normal(size=(500, 1)),
    }
    from contrastive_lvm.io.tables.preparation import unprepared
    from contrastive_lvm.io.tables.prepare import Sets
    from contrastive_lvm.report.evidence import gather
    from contrastive_lvm.report.findings import findings
    from contrastive_lvm.report.write_report import GivenRows, _table

    model = fitted()
    names = unprepared(model)
    tables = [
        _table(rows, GivenRows(rows, None, None, None), names.features)
        for rows in (DATA.target, DATA.background)
    ]
    sets = Sets(tables[0], tables[1], names, [])
    evidence = gather(model, sets, n_resamples=19)
    said = diagnostics(model, sets, findings(model, sets, evidence, top=2), points)
    care = " ".join(item["text"] for item in said if item["level"] == "care")
    assert "Little is enriched" in care
    assert "is uncertain" in care


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"labels": [1, 2]}, "labels has 2 values, but there are 60 rows"),
        ({"labels": {"a": [1] * 60, "b": [1]}}, "labels is not one value per row"),
        ({"labels": np.ones((60, 2))}, "labels is not one value per row"),
        ({"background_labels": ["x"]}, "background_labels has 1 values"),
        ({"background": None}, "background=None, but the model has shared dimensions"),
        ({"background": DATA.background[:, :3]}, "background has 3 features"),
        ({"title": 3}, "title=3 is not text"),
    ],
)
def test_refusals_name_the_argument_and_leave_no_file(
    words: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        written(tmp_path, **words)
    assert not list(tmp_path.iterdir())


def test_the_file_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, path = fitted(), tmp_path / "r.html"
    with pytest.raises(FileNotFoundError, match="cannot be written"):
        model.report(tmp_path / "no" / "r.html", DATA.target, background=DATA.background)
    with pytest.raises(IsADirectoryError, match="is a folder"):
        model.report(tmp_path, DATA.target, background=DATA.background)
    path.write_text("old")

    def full(self: Path, target: Any) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="cannot be written"):
        model.report(path, DATA.target, background=DATA.background)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_unfitted_and_mistaken_models_are_refused(tmp_path: Path) -> None:
    from sklearn.exceptions import NotFittedError

    with pytest.raises(NotFittedError):
        clvm.ContrastiveLVM().report(tmp_path / "r.html", DATA.target)


def test_signs_of_replicates_are_shown_with_the_verdict(tmp_path: Path) -> None:
    data = clvm.datasets.make_contrastive(60, 60, n_features=6, n_shared=1, random_state=0)
    model = clvm.ContrastiveLVM(1, 1).fit(data.target, background=data.background)
    mice = {"mouse": [f"m{row // 10}" for row in range(60)]}
    page = model.report(
        tmp_path / "page.html", data.target, background=data.background, labels=mice
    )
    assert read(page)[1]["caution"].startswith("The column 'mouse' may name replicates")


def test_report_has_subgroups_their_stability_and_what_annotations_explain(tmp_path: Path) -> None:
    """Differences have errors of the whole fit."""
    data = clvm.datasets.make_subgroups(random_state=0)
    model = clvm.ContrastiveLVM(2, 10, latent_prior=clvm.Mixture(4))
    model.fit(data.target, background=data.background)
    ages = np.random.default_rng(0).normal(50.0, 9.0, 400)  # numbers name no replicates
    labels = {"batch": np.where(data.target_labels > 1, "late", "early"), "age": ages}
    place = model.report(
        tmp_path / "page.html", data.target, background=data.background, labels=labels
    )
    _, facts = read(place)
    assert [line["rows"] for line in facts["subgroups"]["table"]] == 4 * [100]
    assert "adjusted Rand index with these subgroups was 1.00" in facts["subgroups"]["stability"]
    assert facts["subgroups"]["errors"]
    assert all(" ± " in line["features"] for line in facts["subgroups"]["table"])
    assert facts["columns"][0]["levels"] == [f"subgroup {c}" for c in range(1, 5)]
    assert "Subgroup 1 is all late (batch)." in facts["annotation_notes"]
    assert facts["caution"] is None
    assert not any("may name replicates" in note["text"] for note in facts["diagnostics"])
    assert any("check whether that is technical" in text for text in facts["annotation_notes"])
    plain = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    _, facts = read(plain.report(place, data.target, background=data.background))
    assert facts["subgroups"] is None
    assert facts["annotation_notes"] == []


@pytest.mark.parametrize("name", ["report.pdf", "report.PNG"])
def test_a_report_is_no_pdf(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not the name of an HTML page; end it in \.html"):
        fitted().report(tmp_path / name, DATA.target, background=DATA.background)
    assert not list(tmp_path.iterdir())


def test_shared_latents_that_tell_the_sets_apart_are_told(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(2, 12))
    near, far = rng.normal(size=(150, 2)), rng.choice([-2.0, 2.0], (150, 2))
    rows = [z @ loadings + 0.3 * rng.normal(size=(150, 12)) for z in (far, near, near[::-1])]
    for target, level in ((rows[0], "care"), (rows[2], "good")):
        model = clvm.ContrastiveLVM(1, 2).fit(target, background=rows[1])
        page = model.report(tmp_path / "report.html", target, background=rows[1])
        data = read(page)[1]
        note = data["background_notes"][0]
        assert note["level"] == level
        assert f"curve {data['facts']['shared_auc']:.2f}" in note["text"]
        expected = clvm.leakage(model, target, rows[1]).set_auc
        assert data["facts"]["shared_auc"] == pytest.approx(expected, abs=1e-6)
