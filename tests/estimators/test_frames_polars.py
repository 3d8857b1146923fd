"""Frames of polars: what frames of pandas can."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import contrastive_lvm as clvm

pl = pytest.importorskip("polars", reason="polars, of the development tools, is not installed")

DATA = clvm.datasets.make_contrastive(40, 30, n_features=5, n_shared=1, random_state=0)
NAMES = ["a", "b", "größe", "d", "e"]
X = pl.DataFrame(DATA.target, schema=NAMES)
B = pl.DataFrame(DATA.background, schema=NAMES)
GAPPY = X.with_columns(pl.when(pl.all() > 2.0).then(None).otherwise(pl.all()).name.keep())


def fit(target: Any, background: Any = B) -> clvm.ContrastiveLVM:
    return clvm.ContrastiveLVM(1, 1).fit(target, background=background)


def as_pandas(frame: Any) -> pd.DataFrame:
    return pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns}, dtype=float)


def test_null_is_missing_and_names_are_kept() -> None:
    assert GAPPY.null_count().to_numpy().sum() > 0
    model, expected = fit(GAPPY), fit(as_pandas(GAPPY))
    np.testing.assert_array_equal(model.target_components_, expected.target_components_)
    assert list(model.feature_names_in_) == NAMES
    np.testing.assert_array_equal(model.transform(GAPPY), expected.transform(as_pandas(GAPPY)))
    np.testing.assert_array_equal(  # models of one kind of frame take the other
        model.transform(as_pandas(GAPPY)), expected.transform(GAPPY)
    )


def test_whole_numbers_and_truths_are_numbers() -> None:
    frame = X.with_columns(
        pl.col("a").round().cast(pl.Int32), pl.col("d") > 0, pl.Series("e", [None, *range(39)])
    )
    np.testing.assert_array_equal(fit(frame).mean_, fit(as_pandas(frame)).mean_)


def test_single_precision_is_not_widened() -> None:
    model = clvm.PPCA(1).fit(X.cast(pl.Float32))
    rows = X.cast(pl.Float32).to_numpy()
    np.testing.assert_array_equal(model.components_, clvm.PPCA(1).fit(rows).components_)


@pytest.mark.parametrize(
    ("target", "background", "kind", "pattern"),
    [
        (X.with_columns(pl.lit("x").alias("b")), B, ValueError, r"X has columns.*\['b'\]"),
        (X, B.with_columns(pl.lit("x").alias("b")), ValueError, r"background has col.*\['b'\]"),
        (X.with_columns(pl.date(2020, 1, 1).alias("b")), B, ValueError, r"not numeric, \['b'\]"),
        (
            X.with_columns(pl.Series("b", ["x"] * 40, dtype=pl.Categorical)),
            B,
            ValueError,
            r"not numeric, \['b'\]",
        ),
        (X.lazy(), B, TypeError, r"LazyFrame, which has no rows yet; pass \.collect\(\)"),
        (X, B.select(NAMES[::-1]), ValueError, "features of X in another order"),
        (X, B.rename({"a": "z"}), ValueError, r"only background has \['z'\]"),
        (X, B.drop("a"), ValueError, r"only X has \['a'\]"),
        (X["a"], B, ValueError, r"X has shape \(40,\)"),
    ],
    ids=str,
)
def test_frames_are_refused_in_one_sentence(
    target: Any, background: Any, kind: type[Exception], pattern: str
) -> None:
    with pytest.raises(kind, match=pattern) as caught:
        fit(target, background)
    assert "\n" not in str(caught.value)


def test_other_columns_are_refused_after_a_fit() -> None:
    model = fit(X)
    for other in (X.select(NAMES[::-1]), X.rename({"a": "z"})):
        for call in (model.transform, model.impute, model.score_samples):
            with pytest.raises(ValueError, match="feature names should match"):
                call(other)


def test_polars_out(tmp_path: Path) -> None:
    model = fit(GAPPY).set_output(transform="polars")
    latents = model.transform(GAPPY)
    assert isinstance(latents, pl.DataFrame)
    assert latents.columns == ["contrastivelvm0"]
    for frame in (
        model.impute(GAPPY),
        model.denoise(GAPPY),
        model.reconstruct(GAPPY),
        model.sample(3, random_state=0),
        model.inverse_transform(latents),
    ):
        assert isinstance(frame, pl.DataFrame)
        assert frame.columns == NAMES
    assert model.impute(GAPPY).null_count().to_numpy().sum() == 0
    model.save(tmp_path / "model.clvm")
    again = clvm.load_model(tmp_path / "model.clvm").set_output(transform="polars")
    assert again.impute(GAPPY).equals(model.impute(GAPPY))
