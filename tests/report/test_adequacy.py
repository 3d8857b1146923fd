"""The report's sentences on whether the background is adequate."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import contrastive_lvm as clvm
from contrastive_lvm.io.tables.preparation import unprepared
from contrastive_lvm.io.tables.prepare import Sets
from contrastive_lvm.io.tables.table import Table, numbered
from contrastive_lvm.report.adequacy import background_notes


def notes(model: clvm.ContrastiveLVM, X: Any, B: Any) -> dict[str, str]:
    names = numbered(X.shape[1])
    tables = [
        Table(rows, names, pd.DataFrame(index=range(len(rows))), None, named=True, source="")
        for rows in (X, B)
    ]
    sets = Sets(tables[0], tables[1], unprepared(model), [])
    return {note["text"]: note["level"] for note in background_notes(model, sets)}


def test_ordinary_and_noisy_backgrounds() -> None:
    data = clvm.datasets.make_contrastive(200, 200, n_features=20, n_shared=3, random_state=0)
    model = clvm.ContrastiveLVM(2, 3).fit(data.target, background=data.background)
    found = notes(model, data.target, data.background)
    assert set(found.values()) == {"good"}
    noisy = data.background + np.random.default_rng(0).standard_normal(data.background.shape)
    model = clvm.ContrastiveLVM(2, 3).fit(data.target, background=noisy)
    (text,) = [text for text, level in notes(model, data.target, noisy).items() if level == "care"]
    assert "give each set its own" in text
    own = clvm.ContrastiveLVM(2, 3, likelihood=clvm.Gaussian(sets="own"))
    found = notes(own.fit(data.target, background=noisy), data.target, noisy)
    assert set(found.values()) == {"good"}


def test_the_page_has_them(tmp_path: Path) -> None:
    data = clvm.datasets.make_contrastive(80, 80, n_features=10, n_shared=2, random_state=0)
    model = clvm.ContrastiveLVM(1, 2).fit(data.target, background=data.background)
    page = model.report(tmp_path / "r.html", data.target, background=data.background)
    assert "both sets vary alike" in page.read_text(encoding="utf-8")


def test_missing_entries_are_not_checked() -> None:
    data = clvm.datasets.make_contrastive(80, 80, n_features=10, n_shared=2, random_state=0)
    data.target[0, 0] = np.nan
    model = clvm.ContrastiveLVM(1, 2).fit(data.target, background=data.background)
    assert notes(model, data.target, data.background) == {}
