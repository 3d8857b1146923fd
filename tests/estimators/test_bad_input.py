"""Bad input: one sentence that names the argument, its value and the way out."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError

import contrastive_lvm as clvm

RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 6))
B = RNG.standard_normal((20, 6))
NAMES = list("abcdef")


def frame(rows: Any, columns: Any = None) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=NAMES if columns is None else columns)


def with_value(rows: Any, value: Any) -> Any:
    changed = rows.astype(object) if isinstance(value, str) else rows.copy()
    changed[3, 2] = value
    return changed


def fit(target: Any = X, background: Any = B, **parameters: Any) -> Any:
    settings = {"n_target": 2, "n_shared": 2, **parameters}
    return clvm.ContrastiveLVM(**settings).fit(target, background=background)


FITS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "width": (lambda: fit(background=B[:, :5]), ValueError, "background has 5 features.*X has 6"),
    "names": (
        lambda: fit(frame(X), frame(B, list("abcdez"))),
        ValueError,
        r"only X has \['f'\], only background has \['z'\]",
    ),
    "order": (
        lambda: fit(frame(X), frame(B, list("bacdef"))),
        ValueError,
        r"another order; pass background\[X.columns\]",
    ),
    "infinite X": (lambda: fit(with_value(X, np.inf)), ValueError, r"X contains infinity \(inf\)"),
    "infinite B": (
        lambda: fit(background=with_value(B, -np.inf)),
        ValueError,
        "background contains infinity",
    ),
    "infinite sparse": (
        lambda: fit(sp.csr_matrix(with_value(X, np.inf)), sp.csr_matrix(B)),
        ValueError,
        "X contains infinity",
    ),
    "text": (lambda: fit(with_value(X, "high")), ValueError, "X contains text.*'high'.*encode"),
    "text column": (
        lambda: fit(frame(X).assign(sex=pd.Categorical(["m"] * 30))),
        ValueError,
        r"X has columns that are not numeric, \['sex'\]",
    ),
    "text background": (
        lambda: fit(background=with_value(B, "low")),
        ValueError,
        "background contains text",
    ),
    "no rows": (lambda: fit(X[:0]), ValueError, r"0 sample\(s\)"),
    "no background rows": (lambda: fit(background=B[:0]), ValueError, r"0 sample\(s\)"),
    "no columns": (lambda: fit(X[:, :0], B[:, :0]), ValueError, r"0 feature\(s\)"),
    "one row": (lambda: fit(X[:1]), ValueError, "X has 1 sample .* at least 2"),
    "one background row": (lambda: fit(background=B[:1]), ValueError, "background has 1 sample"),
    "one dimension": (lambda: fit(X[0]), ValueError, r"X has shape \(6,\).*Reshape"),
    "three dimensions": (lambda: fit(X[None]), ValueError, r"X has shape \(1, 30, 6\)"),
    "none": (lambda: fit(None), ValueError, "X is None, which is not data"),
    "empty column": (
        lambda: fit(np.where(np.arange(6) == 4, np.nan, X)),
        ValueError,
        r"X has no observed entry in columns \['4'\]",
    ),
    "empty column in the background": (
        lambda: fit(background=np.where(np.arange(6) == 1, np.nan, B)),
        ValueError,
        r"background has no observed entry in columns \['1'\]",
    ),
    "constant": (lambda: fit(np.ones((9, 6)), np.ones((8, 6))), ValueError, "do not vary"),
    "overflow": (lambda: fit(X * 1e200, B * 1e200), ValueError, "squares overflow; divide"),
    "too many": (
        lambda: fit(n_target=4, n_shared=3),
        ValueError,
        r"n_target=4 is too large: the model has 7 dimensions in all for 6 feature\(s\)",
    ),
    "too many for the rows": (
        lambda: fit(X[:3], B[:3], n_target=2, n_shared=3),
        ValueError,
        "n_shared=3 is too large: .* must be fewer than 4, the number of rows",
    ),
    "no dimension": (lambda: fit(n_target=0, n_shared=0), ValueError, "no latent dimension"),
    "negative": (lambda: fit(n_target=-1), ValueError, "n_target=-1 must be an integer"),
    "fraction": (lambda: fit(n_shared=2.5), TypeError, "n_shared=2.5 must be an integer"),
    "truth": (lambda: fit(n_target=True), TypeError, "n_target=True must be an integer"),
    "n_init": (lambda: fit(n_init=0), ValueError, "n_init=0 must be an integer"),
    "likelihood": (lambda: fit(likelihood="cauchy"), ValueError, "likelihood='cauchy' is unknown"),
    "likelihood type": (lambda: fit(likelihood=3), TypeError, "likelihood=3 is of type int"),
    "prior": (lambda: fit(target_prior="spike"), ValueError, "target_prior='spike' is unknown"),
    "engine": (lambda: fit(inference="magic"), ValueError, "inference='magic' is unknown"),
    "noise": (
        lambda: clvm.Gaussian(noise=cast("Any", "pink")),
        ValueError,
        "noise='pink' is unknown",
    ),
    "max_iter": (lambda: clvm.EM(max_iter=0), ValueError, "max_iter=0 must be an integer"),
    "tol": (lambda: clvm.EM(tol=-1.0), ValueError, "tol=-1.0 must be a positive number"),
    "no background": (
        lambda: clvm.ContrastiveLVM(2, 2).fit(X),
        ValueError,
        "background=None, but n_shared=2.*n_shared=0",
    ),
    "cpca no background": (lambda: clvm.ContrastivePCA().fit(X), ValueError, "background=None"),
    "cpca nan": (
        lambda: clvm.ContrastivePCA().fit(with_value(X, np.nan), background=B),
        ValueError,
        "X contains NaN.*use ContrastiveLVM or PPCA",
    ),
    "cpca alpha": (
        lambda: clvm.ContrastivePCA(alpha=-1.0).fit(X, background=B),
        ValueError,
        "alpha=-1.0 must be 'auto' or a non-negative number",
    ),
    "cpca alpha type": (
        lambda: clvm.ContrastivePCA(alpha="best").fit(X, background=B),
        TypeError,
        "alpha='best' must be",
    ),
    "cpca components": (
        lambda: clvm.ContrastivePCA(7).fit(X, background=B),
        ValueError,
        "n_components=7 must be at most 6",
    ),
    "ppca components": (lambda: clvm.PPCA(6).fit(X), ValueError, "n_components=6 is too large"),
}

FITTED = fit()
METHODS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "width": (lambda: FITTED.transform(X[:, :4]), ValueError, "X has 4 features.*expecting 6"),
    "of": (lambda: FITTED.latents(X, of="both"), ValueError, "of='both' is unknown; use one of"),
    "parts": (lambda: FITTED.reconstruct(X, parts=("z",)), ValueError, "parts='z' is unknown"),
    "inverse": (
        lambda: FITTED.inverse_transform(X),
        ValueError,
        r"T has shape \(30, 6\).*2 target",
    ),
    "sample size": (lambda: FITTED.sample(0), ValueError, "n_samples=0 must be an integer"),
    "sample of": (lambda: FITTED.sample(2, of="noise"), ValueError, "of='noise' is unknown"),
    "infinity": (lambda: FITTED.score_samples(with_value(X, np.inf)), ValueError, "infinity"),
    "names": (
        lambda: fit(frame(X), frame(B)).transform(frame(X, list("bacdef"))),
        ValueError,
        "feature names",
    ),
}


@pytest.mark.parametrize("case", FITS)
def test_refused_in_one_sentence(case: str) -> None:
    call, kind, pattern = FITS[case]
    with pytest.raises(kind, match=pattern) as caught:
        call()
    assert_one_sentence(str(caught.value))


@pytest.mark.parametrize("case", METHODS)
def test_methods_refuse(case: str) -> None:
    call, kind, pattern = METHODS[case]
    with pytest.raises(kind, match=pattern):
        call()


def assert_one_sentence(message: str) -> None:
    assert "\n" not in message
    assert message.endswith(".")
    assert ". " not in message.replace("e.g. ", "").replace("... ", "")


@pytest.mark.parametrize("method", ["transform", "latents", "impute", "denoise", "score_samples"])
@pytest.mark.parametrize(
    "model", [clvm.ContrastiveLVM(2, 2), clvm.PPCA(2), clvm.ContrastivePCA(2)], ids=type
)
def test_before_fit(method: str, model: Any) -> None:
    if not hasattr(model, method):
        return
    with pytest.raises(NotFittedError):
        getattr(model, method)(X)


@pytest.mark.parametrize("noise", ["isotropic", "feature"])
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.filterwarnings("ignore:.* features have no noise left")
def test_constant_and_duplicated_columns_simply_work(noise: Any, *, missing: bool) -> None:
    rows, others = (np.hstack([r, r[:, :2], np.full((len(r), 1), 7.0)]) for r in (X, B))
    if missing:
        rows[::3, 1] = others[::4, 8] = np.nan
    model = fit(rows, others, likelihood=clvm.Gaussian(noise), inference=clvm.EM(tol=1e-2))
    assert np.isfinite(model.lower_bound_)
    assert np.isfinite(model.transform(rows)).all()
    assert np.isfinite(model.score_samples(others, of="background")).all()
    filled, std = model.impute(rows, return_std=True)
    assert np.isfinite(filled).all()
    assert np.isfinite(std).all()
    assert (np.diff(model.lower_bounds_) >= 0).all()


def test_input_is_never_changed() -> None:
    rows = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    before = rows.copy()
    model = fit(rows)
    for method in ("transform", "latents", "impute", "denoise", "reconstruct", "score_samples"):
        getattr(model, method)(rows)
    np.testing.assert_array_equal(rows, before)
