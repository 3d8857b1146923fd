"""Generalized contrastive PCA (de Oliveira et al. 2024), which needs no contrast parameter."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from contrastive_lvm.arrays import EPS, Array
from contrastive_lvm.checks import check_choice, check_integer
from contrastive_lvm.estimators.base_estimator import all_or_nothing
from contrastive_lvm.estimators.contrastive_projection import (
    ContrastiveProjection,
    check_projection_memory,
)
from contrastive_lvm.estimators.input_rows import check_variances
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.io.model_files import SavedState
from contrastive_lvm.io.value_checks import array, check_values
from contrastive_lvm.linalg.gauge import signed
from contrastive_lvm.linalg.matrices import widen
from contrastive_lvm.rows.reader import LocalRows, RowReader, Rows
from contrastive_lvm.rows.scatter import Moments, first_pass

METHODS = ("v1", "v2", "v3", "v4")
MOST_CONDITION = 1e13  # of the denominator, the authors' limit: beyond it a ridge is added

LEARNED = {
    "components": array("components", "D"),
    "objective_values": array("components"),
    "mean": array("D"),
    "scale": array("D", values="positive"),
}


class GeneralizedContrastivePCA(ContrastiveProjection):
    """Directions that best tell the covariance A of the target from B of the background.

    The four versions of de Oliveira, Bhagat, Sjulson and others (2024) are the leading
    eigenvectors of

    - `"v1"`: `A - B`, contrastive PCA with weight 1;
    - `"v2"`: `A` over `B`;
    - `"v3"`: `A - B` over `B`;
    - `"v4"`: `A - B` over `A + B`, whose objective lies between -1 and 1.

    Here "N over D" means `D^-1/2 N D^-1/2`, whose eigenvectors `v` give the directions `D^-1/2 v`.
    With fewer rows than features, both matrices are restricted to the leading principal directions
    of the two sets together, as many as the smaller set has rows. If nothing is singular, v2, v3
    and v4 without `orthogonal` give the same directions, because all three solve
    `A x = lambda B x`.

    Features are first standardised within each set and divided by the square root of its number of
    rows, as in the authors' package; the directions agree with that package up to rounding. The
    objective values here belong to the standardised rows, whereas the authors' package reports
    those of the original rows.

    Parameters
    ----------
    n_components : int
    method : {"v1", "v2", "v3", "v4"}
        Which ratio is maximised.
    orthogonal : bool
        Make the directions orthogonal: the direction of the largest objective, then that of the
        smallest, and so on in turn, each orthogonal to the earlier ones. These are the authors'
        v2.1, v3.1 and v4.1; v1 is always orthogonal.
    scale : bool
        Standardise features within each set; otherwise they are only centred.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Rows of length 1, the largest entry of each positive.
    objective_values_ : ndarray of shape (n_components,)
        The objective along each component, the largest first.
    mean_, scale_ : ndarray of shape (n_features,)
        Mean and scale of the target, by which `transform` standardises new rows.
    n_samples_, n_background_samples_ : int
        Rows of the two sets.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.GeneralizedContrastivePCA(2).fit(data.target, background=data.background)
    >>> model.transform(data.target).shape
    (400, 2)
    >>> model.objective_values_.round(2)
    array([0.84, 0.8 ])
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        method: str = "v4",
        orthogonal: bool = False,
        scale: bool = True,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.orthogonal = orthogonal
        self.scale = scale

    @all_or_nothing
    def fit(self, X: Any, y: object = None, *, background: Any = None) -> Self:
        """Fit the components to a target set and a background; neither may contain NaN.

        Several backgrounds may be passed as a dict by name; B is then the mean of their
        covariances.
        """
        q = check_integer("n_components", self.n_components, 1)
        check_choice("method", self.method, METHODS)
        pair = _pair(self._read_sets(X, y, background), scale=self.scale)
        if q > pair.basis.shape[1]:
            raise ValueError(
                f"n_components={q} must be at most {pair.basis.shape[1]}, the number of directions "
                "in which the smaller set can vary; use fewer."
            )
        if self.method != "v1":
            _refuse_constant(pair)
        deflate = self.orthogonal and self.method != "v1"
        components = _deflated(pair, self.method, q) if deflate else _leading(pair, self.method)
        self.components_ = signed(components[:, :q]).T
        self.objective_values_ = pair.objective(self.method, self.components_.T)
        self.mean_, self.scale_ = pair.mean, pair.scale
        return self

    def _fitted_state(self) -> dict[str, object]:
        return {name: getattr(self, f"{name}_") for name in LEARNED}

    def _check_state(self, state: SavedState) -> None:
        check_values(LEARNED, state, {"D": self.n_features_in_})
        check_integer("n_components", self.n_components, 1)
        check_choice("method", self.method, METHODS)

    def _restore(self, state: SavedState) -> None:
        for name, value in state.items():
            setattr(self, f"{name}_", value)


class _Pair(NamedTuple):
    """Two covariances in an orthonormal basis of the directions that are compared."""

    A: Array  # (r, r) of the target
    B: Array  # (r, r) of the background
    basis: Array  # (D, r)
    mean: Array  # (D,) of the target
    scale: Array  # (D,) of the target
    shown: tuple[Array, Array]  # A and B as the objective values have them, (r, r)

    def within(self, J: Array) -> "_Pair":
        """Return the covariances in an orthonormal basis J of a part of the space, (r, k)."""
        return self._replace(A=J.T @ self.A @ J, B=J.T @ self.B @ J, basis=self.basis @ J)

    def objective(self, method: str, components: Array) -> Array:
        """Return the objective of standardised rows along given directions, (D, q)."""
        V = self.basis.T @ components
        a, b = (np.einsum("ij,ik,kj->j", V, C, V) for C in self.shown)
        if method == "v1":
            return np.asarray(a - b)
        numerator, denominator = _fraction(method, a, b)
        total = np.trace(_fraction(method, *self.shown)[1])
        return np.asarray(numerator / np.maximum(denominator, total / MOST_CONDITION))


def _fraction(method: str, a: Array, b: Array) -> tuple[Array, Array]:
    return {"v2": (a, b), "v3": (a - b, b), "v4": (a - b, a + b)}[method]


@np.errstate(over="ignore", invalid="ignore")  # an overflow shows as a variance that is not finite
def _pair(sets: list[Rows], *, scale: bool) -> _Pair:
    """Standardise the sets and find the directions that are compared."""
    readers = [X if isinstance(X, RowReader) else LocalRows(X) for X in sets]
    D, least = sets[0].shape[1], min(rows.shape[0] for rows in sets)
    n_rows = sum(rows.shape[0] for rows in sets)
    check_projection_memory(sets, 4 * D * D if least >= D else (2 * n_rows + min(n_rows, D)) * D)
    found = [first_pass(rows, scatter=least >= D) for rows in readers]
    totals = [float(m.square.sum() / m.n_rows) for m in found]
    pooled: Array = np.sum([m.square for m in found], axis=0)
    check_variances(pooled, [m.mean for m in found], totals)
    lengths = [_lengths(m, scale=scale) for m in found]
    parts = list(zip(found, lengths, strict=True))
    if least >= D:
        scatters = [m.scatter / np.outer(length, length) for m, length in parts]
        s, V = np.linalg.eigh(np.sum(scatters, axis=0))
        J = V[:, ::-1][:, s[::-1] > s[-1] * D * EPS]
        scatters = [J.T @ S @ J for S in scatters]
    else:
        rows = [
            (widen(r.load()) - m.mean) / length
            for r, (m, length) in zip(readers, parts, strict=True)
        ]
        _, s, Vt = np.linalg.svd(np.vstack(rows), full_matrices=False)
        tol = max(D, sum(map(len, rows))) * EPS * s[0]
        J = Vt[: min(least, int((s > tol).sum()))].T
        scatters = [(Z @ J).T @ (Z @ J) for Z in rows]
    covariances = [S / (m.n_rows - 1.0) for S, m in zip(scatters, found, strict=True)]
    A, B = covariances[0], np.mean(covariances[1:], axis=0)
    if not scale:
        return _Pair(A, B, J, found[0].mean, lengths[0], (A, B))
    correlations = scatters[0], np.mean(scatters[1:], axis=0)
    return _Pair(A, B, J, found[0].mean, lengths[0] / np.sqrt(found[0].n_rows), correlations)


def _refuse_constant(pair: _Pair) -> None:
    """Refuse a set that does not vary: all directions then have the same ratio."""
    for name, covariance in (("X", pair.A), ("background", pair.B)):
        if not np.trace(covariance) > 0:
            reason = "does not vary, so all directions have the same ratio; use method='v1'."
            raise InvalidDataError(name, reason)


def _lengths(moments: Moments, *, scale: bool) -> Array:
    """Return the lengths by which centred features are divided, 1 if they do not vary, (D,)."""
    if not scale:
        return np.ones(len(moments.mean))
    return np.sqrt(np.where(moments.square > 0, moments.square, 1.0))


def _leading(pair: _Pair, method: str) -> Array:
    """Return all directions, of the largest objective first, (D, r)."""
    if method == "v1":
        _, V = np.linalg.eigh(pair.A - pair.B)
        return np.asarray(pair.basis @ V[:, ::-1])
    numerator, denominator = _fraction(method, pair.A, pair.B)
    d, E = np.linalg.eigh(denominator)
    if d[-1] > MOST_CONDITION * d[0]:
        d = d + d[-1] / MOST_CONDITION - d[0]
    root = (E / np.sqrt(d)) @ E.T  # D^-1/2
    _, V = np.linalg.eigh(root @ numerator @ root)
    directions = pair.basis @ (root @ V[:, ::-1])
    return np.asarray(directions / np.linalg.norm(directions, axis=0))


def _deflated(pair: _Pair, method: str, q: int) -> Array:
    """Return the q orthogonal directions of the largest objective, (D, q)."""
    r = pair.basis.shape[1]
    first: list[Array] = []
    last: list[Array] = []
    for i, direction in enumerate(_in_turn(pair, method)):
        (last if i % 2 else first).append(direction)
        if len(first) == q or i + 1 == r:
            break
    return np.column_stack([*first, *reversed(last)])


def _in_turn(pair: _Pair, method: str) -> Iterator[Array]:
    """Yield the direction of the largest objective, of the smallest, and so on."""
    rest, use_last = pair, False
    while True:
        direction = _leading(rest, method)[:, -1 if use_last else 0]
        yield direction
        inside = rest.basis.T @ direction
        J = np.linalg.svd(inside[:, None], full_matrices=True)[0][:, 1:]
        rest, use_last = rest.within(J), not use_last
