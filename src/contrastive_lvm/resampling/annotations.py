"""How much annotations explain of latents and subgroups that were found without them.

The share explained is that of a linear regression on the annotation (its classes, or its numbers):
the sum of squares of the fitted values over that of the latents. Of subgroups, the probabilities
take the place of latents; for probabilities of 0 and 1 that is Goodman and Kruskal's tau. A fit
treats all rows alike and never sees the annotations, so that without any relation every permutation
of them is as likely as the one observed, and the p-value is exact, however the latents were chosen.

Rows of a replicate are not exchangeable with others. An annotation that all rows of a replicate
share (genotype of an animal) is permuted among replicates, any other within replicates.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.arrays import TINY, Array, Column, Covariates, RowLabels
from contrastive_lvm.checks import Seed, check_integer
from contrastive_lvm.estimators.subgroups import has_subgroups
from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.resampling import LEVEL
from contrastive_lvm.resampling.parallel import seed_sequence
from contrastive_lvm.resampling.replicates import Flags, Integers, check_replicates

MOST_ROWS = 2000  # evenly spaced rows that are compared with annotations
TECHNICAL = ("batch", "plate", "run", "lane", "site", "chip", "library", "operator")


def explain_annotations(
    model: Any,
    X: Any,
    annotations: Any,
    *,
    groups: RowLabels = None,
    covariates: Covariates = None,
    n_permutations: int = 999,
    random_state: Seed = None,
) -> pd.DataFrame:
    """Measure how much annotations explain of target latents, shared latents and subgroups.

    Parameters
    ----------
    model : ContrastiveLVM or ContrastiveVAE
        A fitted model.
    X : array-like or sparse matrix of shape (n, d)
        Rows of the target.
    annotations : DataFrame or mapping of str to array-like of shape (n,)
        Annotations of the rows. Text, truth values and integers with at most ten different values
        are treated as classes, and other numbers as numbers. Rows without a value are left out.
    groups : array-like of shape (n,), optional
        The replicate of each row. Annotations that are constant within replicates are permuted
        among whole replicates, others within replicates.
    covariates : optional, as in `fit`
    n_permutations : int
    random_state : int, generator or None
        Draws the permutations.

    Returns
    -------
    DataFrame
        Columns `annotation`, `of` ("target", "shared" or "subgroups"), `explained` (share of the
        variance, from 0 to 1), `by_chance` (its mean over permutations), `pvalue` (of one
        comparison among all of the table) and `permuted` ("rows", "replicates" or "within
        replicates"). An annotation with one value, or that no permutation changes, is left out.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.make_subgroups(random_state=0)
    >>> model = clvm.ContrastiveLVM(2, 10).fit(data.target, background=data.background)
    >>> kinds = {"kind": data.target_labels}
    >>> table = clvm.explain_annotations(model, data.target, kinds, random_state=0)
    >>> table.round(2)[["of", "explained", "by_chance", "pvalue"]].values.tolist()
    [['target', 0.97, 0.01, 0.0], ['shared', 0.0, 0.01, 0.98]]
    """
    known = {} if covariates is None else {"covariates": covariates}
    found = model.latents(X, **known)
    spaces = {"target": np.asarray(found.target), "shared": np.asarray(found.shared)}
    if has_subgroups(model):
        spaces["subgroups"] = np.asarray(model.predict_proba(X, **known))
    frame = pd.DataFrame(annotations).reset_index(drop=True).rename(columns=str)
    if len(frame) != len(spaces["target"]):
        reason = f"has {len(frame)} rows, but X has {len(spaces['target'])}; give one per row."
        raise InvalidDataError("annotations", reason)
    return explained(spaces, frame, groups, n_permutations, random_state)


def explained(
    spaces: dict[str, Array],
    annotations: pd.DataFrame,
    groups: RowLabels = None,
    n_permutations: int = 999,
    random_state: Seed = 0,
) -> pd.DataFrame:
    """Return the table of `explain_annotations` for latents and probabilities that are known."""
    n = len(annotations)
    check_integer("n_permutations", n_permutations, 1)
    at = np.linspace(0, n - 1, min(n, MOST_ROWS)).astype(np.intp)
    replicate = check_replicates([groups], [n]).rows[0][at]
    rng, lines = np.random.default_rng(seed_sequence(random_state)), []
    whole = np.hstack([Z[at] for Z in spaces.values()])
    ends = np.cumsum([Z.shape[1] for Z in spaces.values()])
    places = {
        of: slice(end - Z.shape[1], end) for (of, Z), end in zip(spaces.items(), ends, strict=True)
    }
    for name, column in annotations.items():
        known = _read(column.iloc[at])
        rows = np.flatnonzero(known.seen)
        orders = _orders(known.values[rows], replicate[rows], labelled=groups is not None)
        if orders is None:
            continue
        part = whole[rows] - whole[rows].mean(axis=0)
        totals = np.array([(part[:, own] ** 2).sum() for own in places.values()])
        first = _squares(known, rows, part)
        others = np.array(
            [_squares(known, rows[orders.draw(rng)], part) for _ in range(n_permutations)]
        )
        for (of, own), total in zip(places.items(), totals, strict=True):
            if total <= 1e-12 * len(rows):  # no dimension, or one subgroup
                continue
            share, drawn = first[own].sum() / total, others[:, own].sum(axis=1) / total
            pvalue = (1 + (drawn >= share * (1.0 - 1e-12)).sum()) / (1 + n_permutations)
            lines.append((str(name), of, share, drawn.mean(), pvalue, orders.what))
    heads = ["annotation", "of", "explained", "by_chance", "pvalue", "permuted"]
    return pd.DataFrame(lines, columns=heads)


class _Known(NamedTuple):
    """The values of an annotation: codes of classes, or numbers."""

    values: Array  # (N,)
    n_classes: int  # 0 for numbers
    seen: Flags


def _read(column: Column) -> _Known:
    seen = np.asarray(column.notna())
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if numeric:
        numbers = column.to_numpy(dtype=float)
        whole = (numbers[seen] == np.round(numbers[seen])).all()
        if not whole or len(np.unique(numbers[seen])) > 10:
            return _Known(numbers, 0, seen)
    codes, classes = pd.factorize(column)
    return _Known(codes.astype(float), len(classes), seen)


class _Orders(NamedTuple):
    """Permutations under which the data is as likely: of rows, of replicates, or within them."""

    what: str
    replicate: Integers  # (n,) from 0 on
    first: Integers  # a row of each replicate

    def draw(self, rng: np.random.Generator) -> Integers:
        """Draw a permutation: the row whose value each row gets."""
        n = len(self.replicate)
        if self.what == "rows":
            return rng.permutation(n)
        if self.what == "replicates":
            return np.asarray(self.first[rng.permutation(len(self.first))][self.replicate])
        order = np.empty(n, dtype=np.intp)
        before = np.argsort(self.replicate, kind="stable")
        order[before] = before[np.lexsort((rng.random(n), self.replicate[before]))]
        return order


def _orders(values: Array, replicate: Integers, *, labelled: bool) -> _Orders | None:
    """Return the permutations of an annotation; None if none of them changes it."""
    if len(np.unique(values)) < 2:
        return None
    _, first, replicate = np.unique(replicate, return_index=True, return_inverse=True)
    constant = bool((values == values[first][replicate]).all())
    what = "rows" if not labelled else "replicates" if constant else "within replicates"
    return _Orders(what, replicate, first)


def _squares(known: _Known, rows: Integers, Z: Array) -> Array:
    """Return the sum of squares of each centred column that values of given rows explain."""
    own = known.values[rows]
    if not known.n_classes:
        own = own - own.mean()
        return np.asarray((own @ Z) ** 2 / np.maximum(own @ own, TINY))
    member = np.eye(known.n_classes)[own.astype(np.intp)]  # (n, classes)
    counts = np.maximum(member.sum(axis=0), 1.0)
    return np.asarray(((member.T @ Z) ** 2 / counts[:, None]).sum(axis=0))


def annotation_sentences(
    table: pd.DataFrame, annotations: pd.DataFrame, labels: Integers | None
) -> list[str]:
    """Describe what a table of `explain_annotations` shows, at 5 % for all comparisons together.

    `labels` has the most probable subgroup of each row, if there are any.
    """
    said, columns = [], (table[name].tolist() for name in ("annotation", "of", "pvalue"))
    shares = table.explained.to_numpy(dtype=float), table.by_chance.to_numpy(dtype=float)
    for name, of, pvalue, share, chance in zip(*columns, *shares, strict=True):
        if pvalue * len(table) > LEVEL:
            continue
        if of == "subgroups" and labels is not None:
            said += _compositions(name, annotations[name], labels)
        if of == "target" and share - chance >= 0.1:
            technical = any(word in name.lower() for word in TECHNICAL)
            check = ": check whether that is technical" if technical else ""
            said.append(
                f"{name} explains {share:.0%} of the variance of the target latents ({chance:.0%} "
                f"by chance, p = {pvalue:.2g}){check}."
            )
    return said


def _compositions(name: str, column: Column, labels: Integers) -> list[str]:
    """Describe subgroups in which nearly all rows have a value that other subgroups lack."""
    said, values = [], column.astype(object).to_numpy()
    if _read(column).n_classes == 0:
        return [f"Subgroups differ in {name}."]
    for c in np.unique(labels):
        counts = pd.Series(values[labels == c]).value_counts(normalize=True)
        if len(counts) and counts.iloc[0] >= 0.9:
            how = "all" if counts.iloc[0] == 1.0 else "nearly all"
            said.append(f"Subgroup {c + 1} is {how} {counts.index[0]} ({name}).")
    return said or [f"Subgroups differ in {name}, but none is nearly all of one kind."]
