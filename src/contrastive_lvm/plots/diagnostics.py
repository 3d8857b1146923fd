"""Diagnostic plots of a fit: its trace, missing entries, and how well they are imputed."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from scipy.sparse import coo_array
from sklearn.preprocessing import StandardScaler

from contrastive_lvm.arrays import Array, unnamed
from contrastive_lvm.linalg.matrices import is_sparse
from contrastive_lvm.plots import style
from contrastive_lvm.plots.inputs import learned, named_models, read_missing
from contrastive_lvm.plots.uncertainty import Z90


def plot_trace(models: Any, *, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Plot the lower bound after every iteration (or epoch), and how the fit ended.

    Autoencoders with validation rows have a second, dashed curve: the bound of those rows.

    Parameters
    ----------
    models : fitted estimator with a `lower_bounds_`, or a mapping of str to such estimators
        One model, or several with their names.
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM().fit(data.target, background=data.background)
    >>> ax = clvm.plots.plot_trace(model)
    >>> len(ax.lines[0].get_ydata()) == len(model.lower_bounds_)
    True
    """
    named = named_models(models)
    which = "ContrastiveLVM, ContrastiveVAE or VAE"
    traces = {n: np.asarray(learned(m, "lower_bounds_", which)) for n, m in named.items()}
    ax = style.axes_or_new(ax, (5.4, 3.6))
    last, words = 0.0, []
    for code, (name, model) in enumerate(named.items()):
        colour = style.colour_of(code)
        last = max(last, _draw_trace(ax, model, traces[name], colour))
        words.append((_outcome(name, model, traces[name]), colour))
    if last > 50:  # most of the gain comes early
        style.logarithmic(ax, "x")
    epochs = any(hasattr(model, "history_") for model in named.values())
    style.finish(ax, title, "epoch" if epochs else "iteration", "lower bound")
    if len(words) == 1:  # a bound rises to the right, which leaves the lower corner free
        style.names_in_corner(ax, words, right=True, top=False)
        return ax
    low, high = ax.get_xlim()
    ax.set_xlim(low, high * 6.0 if ax.get_xscale() == "log" else high + 0.5 * (high - low))
    ends = zip(traces.values(), words, strict=True)
    style.names_at_ends(ax, ((last, float(own[-1]), *word) for own, word in ends))
    return ax


def _draw_trace(ax: Axes, model: Any, trace: Array, colour: str) -> float:
    """Draw the curves of one model and return the number of its last iteration or epoch."""
    history = getattr(model, "history_", {})
    at = np.asarray(history.get("epoch", np.arange(1, len(trace) + 1)))
    marker = "o" if len(trace) <= 30 else ""
    ax.plot(at, trace, marker=marker, ms=3.0, color=colour, lw=1.5)
    held = np.asarray(history.get("validation_bound", []))
    looked = np.isfinite(held)  # not after every epoch
    if looked.any():
        ax.plot(at[looked], held[looked], color=colour, linewidth=1.2, linestyle="--")
    return float(at[-1])


def _outcome(name: str, model: Any, trace: Array) -> str:
    """Say how a fit ended: in full for a single one, after its name otherwise."""
    early = not getattr(model, "converged_", True)
    if name:
        return style.label(name) + (", stopped early" if early else "")
    return f"{'stopped early' if early else 'converged'} at {trace[-1]:.6g}"


def plot_missing(
    X: Any, background: Any = None, *, ax: Axes | None = None, title: str | None = None
) -> Axes:
    """Plot a map of the missing entries of both sets, rows downwards and features to the right.

    Large sets are drawn as tiles, each as dark as the share of its entries that is missing.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        The target set; NaN is a missing entry.
    background : array-like or sparse matrix of shape (m, d), optional
    ax : as in `plot_latents`
    title : str, optional
        By default the shares that are missing.

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> ax = clvm.plots.plot_missing([[1.0, np.nan], [2.0, 3.0]], [[np.nan, 1.0]])
    >>> ax.get_title(loc="left")
    'Missing: target 25%, background 50%'
    """
    sets = {"target": read_missing(X, "X")}
    if background is not None:
        sets["background"] = read_missing(background, "background")
    widths = {name: missing.shape[1] for name, missing in sets.items()}
    if len(set(widths.values())) > 1:
        raise ValueError(
            f"X and background have different numbers of features, {widths}; "
            "give both the same columns."
        )
    ax = style.axes_or_new(ax, (5.4, 4.2))
    middles, top = {}, 0.0
    for name, missing in sets.items():
        colour = style.PALETTE[0] if name == "target" else style.BACKGROUND
        n, d = missing.shape
        bottom, extent = top + n, (-0.5, d - 0.5, top + n, top)
        ax.imshow(_shaded(missing, colour), extent=extent, aspect="auto", interpolation="nearest")
        middles[f"{name}\n{n} rows"] = (top + bottom) / 2.0
        top = bottom + 0.03 * sum(own.shape[0] for own in sets.values())
    ax.set_ylim(bottom, 0.0)
    shares = ", ".join(f"{name} {_percent(missing)}" for name, missing in sets.items())
    style.finish(ax, f"Missing: {shares}" if title is None else title, "feature", "")
    ax.set_yticks(list(middles.values()), list(middles))
    return style.without_frame(ax)


def _shaded(missing: coo_array, colour: str) -> Array:
    """Shade up to 240 x 240 tiles by their share of missing entries, from light grey."""
    edges = [np.linspace(0, n, min(n, 240) + 1).round() for n in missing.shape]
    counts, _, _ = np.histogram2d(missing.row + 0.5, missing.col + 0.5, bins=edges)
    share = (counts / np.outer(*(np.diff(e) for e in edges)))[:, :, None]
    return np.asarray((1.0 - share) * 0.94 + share * np.array(to_rgb(colour)))


def _percent(missing: coo_array) -> str:
    share = missing.nnz / np.prod(missing.shape)
    return f"{100.0 * share:.2g}%" if share < 0.995 else f"{100.0 * share:.3g}%"


def plot_imputation(
    model: Any,
    X: Any,
    held_out: Any,
    *,
    of: str = "target",
    scaled: bool = True,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Plot held-out entries against the values that the model imputes for them.

    Up to 300 entries are drawn with 90 % intervals, and the plot states the share of all entries
    that lie inside their intervals. Fit the model without the held-out entries; otherwise the
    imputation looks better than it is.

    Parameters
    ----------
    model : fitted ContrastiveLVM, ContrastiveVAE, PPCA or VAE
    X : array-like of shape (n, d)
        Rows with the held-out entries in place.
    held_out : array-like of bool of shape (n, d)
        Entries to hide and impute; those that are NaN in X are ignored.
    of : {"target", "background"}
        Which set the rows belong to.
    scaled : bool
        Whether to draw entries in standard deviations of their feature about its mean in X.
    ax, title : as in `plot_latents`

    Examples
    --------
    >>> import numpy as np
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> hidden = np.random.default_rng(0).random(data.target.shape) < 0.02
    >>> seen = np.where(hidden, np.nan, data.target)
    >>> model = clvm.ContrastiveLVM().fit(seen, background=data.background)
    >>> ax = clvm.plots.plot_imputation(model, data.target, hidden)
    >>> ax.get_ylabel()
    'imputed value, with 90% intervals'
    """
    impute = learned(model, "impute", "ContrastiveLVM, ContrastiveVAE, PPCA or VAE")
    rows, hidden = _held_out(X, held_out)
    which = {"of": of} if of != "target" else {}  # PPCA and VAE have one set
    seen: Any = np.where(hidden, np.nan, rows)
    if hasattr(X, "columns"):  # models remember the names of features
        seen = pd.DataFrame(seen, columns=X.columns)
    filled, std = (np.asarray(found) for found in impute(seen, return_std=True, **which))
    units = StandardScaler(with_mean=scaled, with_std=scaled).set_output(transform="default")
    units.fit(rows)
    truth, guess = (units.transform(values)[hidden] for values in (rows, filled))
    std = (std / units.scale_ if scaled else std)[hidden]
    ax = style.axes_or_new(ax)
    drawn = _draw_guesses(ax, truth, guess, std)
    inside = float((np.abs(truth - guess) <= Z90 * std).mean())
    error = float(np.sqrt(np.mean((truth - guess) ** 2)))
    words = (
        f"{len(truth)} entries",
        f"error {error:.2g} (root mean square)",
        f"{inside:.0%} inside 90% intervals",
    )
    style.names_in_corner(ax, [(word, style.INK) for word in words])
    unit = ", standard deviations" if scaled else ""
    intervals = ", with 90% intervals" if drawn else ""
    return style.finish(ax, title, f"true value{unit}", f"imputed value{intervals}")


def _held_out(X: Any, held_out: Any) -> tuple[Array, np.ndarray]:
    X = unnamed(X)
    rows = np.asarray(X.toarray() if is_sparse(X) else X, dtype=np.float64)
    mask = np.asarray(held_out)
    if mask.dtype != bool or mask.shape != rows.shape:
        raise ValueError(
            f"held_out has type {mask.dtype} and shape {mask.shape}, but X has shape "
            f"{rows.shape}; give True or False for every entry of X."
        )
    mask = mask & ~np.isnan(rows)
    if not mask.any():
        raise ValueError("held_out holds out no observed entry of X; mark some entries as True.")
    return rows, mask


def _draw_guesses(ax: Axes, truth: Array, guess: Array, std: Array) -> bool:
    """Draw points about the diagonal; return whether there are few enough for intervals."""
    few = len(truth) <= 300
    reach = Z90 * std if few else np.zeros(len(std))
    both = style.limits_of(truth, guess - reach, guess + reach, margin=0.04)
    ax.plot(both, both, color=style.INK, linewidth=0.8, linestyle=":")
    if few:
        ends = (guess - reach, guess + reach)
        ax.vlines(truth, *ends, colors=style.PALETTE[4], linewidths=0.8, alpha=0.7)
    size = style.point_size(len(truth))
    ax.scatter(truth, guess, s=size, color=style.PALETTE[0], alpha=0.7, linewidths=0.0, zorder=3)
    ax.set(xlim=both, ylim=(both[0], both[1] + 0.22 * (both[1] - both[0])))  # space for the text
    return few
