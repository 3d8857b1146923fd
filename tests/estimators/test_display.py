"""Fitted estimators in notebooks: a card above scikit-learn's diagram, and nothing else changed."""

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import contrastive_lvm as clvm
from contrastive_lvm.estimators.display import STYLE

HOSTILE = ["<script>alert(1)</script>", "a & b", "\"quoted' name", "</table></div>"]
VOID = {"br", "hr", "img", "input", "meta", "link"}


class Tags(HTMLParser):
    """Tags that are opened and closed in order, the text between them, and what they ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def frames(names: list[str] | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    data = clvm.datasets.make_contrastive(60, 50, n_features=6, n_shared=2, random_state=0)
    names = names or [f"gene {i}" for i in range(6)]
    return pd.DataFrame(data.target, columns=names), pd.DataFrame(data.background, columns=names)


def fitted(kind: str, names: list[str] | None = None) -> Any:
    target, background = frames(names)
    if kind == "ContrastiveLVM":
        return clvm.ContrastiveLVM(2, 2).fit(target, background=background)
    if kind == "ContrastivePCA":
        return clvm.ContrastivePCA(2, alpha=1.0).fit(target, background=background)
    if kind == "GeneralizedContrastivePCA":
        return clvm.GeneralizedContrastivePCA(2).fit(target, background=background)
    if kind in NETWORKS:
        return kept_network(kind, names or [])
    return clvm.PPCA(2).fit(target)


def kept_network(kind: str, names: list[str]) -> Any:
    """A network that was trained once, since compilation takes seconds."""
    pytest.importorskip("jax", reason="jax is not installed")
    model = clvm.load_model(MODELS / NETWORKS[kind])
    model.feature_names_in_ = np.array(names[: model.n_features_in_], dtype=object)
    return model


MODELS = Path(__file__).parents[1] / "io" / "fixtures" / "models" / "v1"
NETWORKS = {"ContrastiveVAE": "contrastive_vae.clvm", "VAE": "vae.clvm"}
PROJECTIONS = ("ContrastivePCA", "GeneralizedContrastivePCA")
KINDS = ("ContrastiveLVM", "PPCA", *PROJECTIONS, *NETWORKS)


def card_of(model: Any) -> str:
    """What stands before scikit-learn's diagram, which begins with a style of its own."""
    bundle = model._repr_mimebundle_()
    assert bundle["text/plain"] == repr(model)
    whole: str = bundle["text/html"]
    assert model._repr_html_().startswith(STYLE)
    assert whole.startswith(STYLE)
    end = whole.index("<style>", len(STYLE))
    assert "sk-" in whole[end:]
    return whole[:end]


@pytest.mark.parametrize("kind", KINDS)
def test_every_estimator_has_a_whole_card(kind: str) -> None:
    names = [*HOSTILE, "e", "f"]
    model = fitted(kind, names)
    card = card_of(model)
    tags = Tags(card)
    assert tags.open == []
    assert "script" not in tags.seen
    assert not {"src", "href", "onclick"}.intersection(name for name, _ in tags.attributes)
    assert "url(" not in card
    assert "@import" not in card
    n, m, d = (14, 12, 5) if kind in NETWORKS else (60, 50, 6)
    assert tags.text.startswith(f"{kind}, fitted to {n} ")
    both = "Contrastive" in kind
    assert (f"{n} target and {m} background rows of {d} features" in tags.text) == both
    assert any(name in tags.text for name in names)
    assert ("bound" in tags.text) == (kind not in PROJECTIONS)
    assert len(card) < 20_000


def test_the_numbers_are_the_models() -> None:
    model = fitted("ContrastiveLVM")
    text = Tags(card_of(model)).text
    assert "2 target and 2 shared dimensions" in text
    assert f"converged after {model.n_iter_:,} sweeps" in text
    assert f"target {model.target_variance_ratio_.sum():.1%}" in text
    assert f"noise {model.noise_variance_ratio_:.1%}" in text
    for row, share in zip(model.target_components_, model.target_variance_ratio_, strict=True):
        first = int(np.abs(row).argmax())
        number = f"{row[first]:+#.2g}".replace("-", "\N{MINUS SIGN}")
        assert f"{share:.1%}gene {first} {number}" in text.replace("% gene", "%gene")


def test_features_without_names_are_numbered_as_scikit_learn_does() -> None:
    target, background = (frame.to_numpy() for frame in frames())
    model = clvm.ContrastiveLVM(1, 2).fit(target, background=background)
    assert f"x{int(np.abs(model.target_components_[0]).argmax())} +" in Tags(card_of(model)).text


def test_a_fit_that_did_not_converge_says_so_and_what_to_do() -> None:
    target, background = frames()
    target.iloc[0, 0] = np.nan
    model = clvm.ContrastiveLVM(2, 2, inference=clvm.EM(max_iter=2))
    with pytest.warns(ConvergenceWarning):
        model.fit(target, background=background)
    text = Tags(card_of(model)).text
    assert f"stopped after {model.n_iter_} sweeps, before it converged; raise max_iter" in text


def test_a_card_of_many_features_and_dimensions_is_small() -> None:
    rng = np.random.default_rng(0)
    names = [f"{'long name ' * 30}{i}" for i in range(10_000)]
    model = clvm.PPCA(12).fit(pd.DataFrame(rng.normal(size=(30, 10_000)), columns=names))
    card = card_of(model)
    assert len(card) < 20_000
    assert "and 4 more dimensions" in Tags(card).text


@pytest.mark.parametrize("kind", KINDS)
def test_unfitted_estimators_are_scikit_learns(kind: str) -> None:
    model = getattr(clvm, kind)()
    assert "clvm-card" not in model._repr_html_()
    assert set(model._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert repr(model) == f"{kind}()"


def test_text_display_is_respected() -> None:
    model = fitted("PPCA")
    with sklearn.config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")
    assert repr(model) == "PPCA()"


def test_pipelines_show_what_they_always_show() -> None:
    pipeline = make_pipeline(StandardScaler(), clvm.PPCA(2)).fit(frames()[0])
    shown = pipeline._repr_html_()
    assert "PPCA" in shown
    assert "clvm-card" not in shown


def test_a_failed_refit_does_not_break_the_display() -> None:
    model = fitted("PPCA")
    with pytest.raises(ValueError, match="n_components"):
        model.set_params(n_components=9).fit(np.zeros((5, 3)))
    assert "PPCA" in Tags(card_of(model)).text


def test_model_files_keep_the_rows(tmp_path: Path) -> None:
    model = fitted("ContrastiveLVM")
    model.save(tmp_path / "m.clvm")
    loaded = clvm.load_model(tmp_path / "m.clvm")
    assert (loaded.n_samples_, loaded.n_background_samples_) == (60, 50)
    assert card_of(loaded) == card_of(model)


def test_the_diagram_is_untouched() -> None:
    model = fitted("PPCA")
    own = card_of(model)
    shown = model._repr_mimebundle_()["text/html"][len(own) :]
    plain = BaseEstimator._repr_mimebundle_(model)["text/html"]
    assert _without_numbers(shown) == _without_numbers(plain)


def _without_numbers(diagram: str) -> str:
    """Diagrams count themselves."""
    return "".join(letter for letter in diagram if not letter.isdigit())
