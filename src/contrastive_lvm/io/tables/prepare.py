"""From files to the two sets of a fit, and the same preparation again for new rows."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from contrastive_lvm.io.container import ModelFileError
from contrastive_lvm.io.tables.choose_rows import Condition, Mask, divided, matching, parsed, taken
from contrastive_lvm.io.tables.read import read_table
from contrastive_lvm.io.tables.standardize import METHODS, Scaling, scaling_of
from contrastive_lvm.io.tables.table import Table, numbered, some
from contrastive_lvm.linalg.matrices import is_sparse, row_slices

Told = Callable[[Path], Callable[[int], None]]  # a file, and then the bytes of it that are behind


class Choice(NamedTuple):
    """Which rows of which files are target and background, as words say."""

    by: str | None = None
    target: Sequence[str] = ()
    background: Sequence[str] = ()
    where: Sequence[str] = ()
    annotations: Sequence[str] = ()
    layer: str | None = None  # of h5ad files
    sizes: str | None = None  # the column of size factors

    def conditions(self, option: str) -> list[Condition]:
        """Of the target or the background, with those of both."""
        both = [parsed("--where", text) for text in self.where]
        return both + [parsed(f"--{option}", t, self.by) for t in getattr(self, option)]


class Preparation(NamedTuple):
    """What new rows need before the model sees them."""

    features: list[str]
    named: bool
    scaling: Scaling
    layer: str | None = None  # of h5ad files
    sizes: str | None = None  # the column of size factors
    origin: dict[str, Any] | None = None  # where the rows of the fit came from, see `again`

    def facts(self) -> dict[str, Any]:
        """What is no array, for a model file."""
        return {
            "features": self.features,
            "named": self.named,
            "scale": self.scaling.method,
            "layer": self.layer,
            "size_factors": self.sizes,
            "origin": self.origin,
        }

    def arrays(self) -> dict[str, Any]:
        """The arrays, for a model file."""
        return {"center": self.scaling.center, "scale": self.scaling.scale}


class Sets(NamedTuple):
    """Two sets with the same features, in the units of the model."""

    target: Table
    background: Table | None
    preparation: Preparation
    dropped: list[str]  # features that only one of two files has


def restored(facts: Any, arrays: dict[str, Any], source: Path) -> Preparation:
    """The preparation of a model file, checked."""
    try:
        features, method = list(facts["features"]), facts["scale"]
        scaling = Scaling(method, arrays["center"], arrays["scale"])
        words = [facts.get(name) for name in ("layer", "size_factors")]  # not in the first files
        whole = method in METHODS and isinstance(facts["named"], bool)
        whole = whole and all(isinstance(name, str) for name in features)
        whole &= all(isinstance(word, str | None) for word in words)
        shapes = {a.shape for a in (scaling.center, scaling.scale)} == {(len(features),)}
        finite = all(np.isfinite(a).all() for a in (scaling.center, scaling.scale))
        usable = bool(finite and (scaling.scale > 0).all())
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelFileError(
            f"{source} is damaged: its preparation is not whole; fit it again."
        ) from error
    if not (whole and shapes and usable):
        raise ModelFileError(
            f"{source} is damaged: its preparation does not fit together; fit it again."
        )
    return Preparation(features, facts["named"], scaling, words[0], words[1], facts.get("origin"))


def unprepared(estimator: Any) -> Preparation:
    """Of a model that was fitted in Python to data as it was."""
    d, names = int(estimator.n_features_in_), getattr(estimator, "feature_names_in_", None)
    features = numbered(d) if names is None else [str(name) for name in names]
    scaling = Scaling("none", np.zeros(d), np.ones(d))
    return Preparation(features, names is not None, scaling)


def read_sets(
    target_file: Path,
    background_file: Path | None,
    choice: Choice,
    *,
    scale: str = "none",
    alone: bool = False,
    told: Told = lambda path: lambda done: None,
) -> Sets:
    r"""Read one file or two, choose rows, keep common columns, and scale both sets together.

    Parameters
    ----------
    target_file : Path
        The file with the target's rows.
    background_file : Path or None
        That of the background; None is the same file.
    choice : Choice
        Conditions on rows. A set without conditions of its own is all rows of its file; of one
        file, rows with another value in the column `by`.
    scale : {"standard", "robust", "none"}
    alone : bool
        Whether the target may go without a background.
    told : function
        Given a file, a function that is told how much of it is behind.

    Returns
    -------
    Sets

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text("group,age\ncase,40\ncontrol,30\ncase,50\n")
    >>> sets = read_sets(path, None, Choice(by="group", target=["case"]))
    >>> sets.target.values.tolist(), sets.background.values.tolist()
    ([[40.0], [50.0]], [[30.0]])
    """
    tables = read_tables(target_file, background_file, choice, told=told)
    return sets_of(*tables, choice, scale=scale, alone=alone)


def read_tables(
    target_file: Path,
    background_file: Path | None,
    choice: Choice,
    *,
    features: set[str] | None = None,
    told: Told = lambda path: lambda done: None,
) -> tuple[Table, Table | None]:
    """The first half of `read_sets`, which takes the time: one file or two as they are.

    `features` are the only columns that are numbers, if given.
    """
    _check_layer(choice.layer, target_file, background_file)
    aside = _aside(choice)
    read = partial(read_table, annotations=aside, features=features, layer=choice.layer)
    table = read(target_file, told=told(target_file))
    if background_file is None:
        return table, None
    return table, read(background_file, told=told(background_file))


def sets_of(
    table: Table, other: Table | None, choice: Choice, *, scale: str = "none", alone: bool = False
) -> Sets:
    """The second half: rows chosen, columns that both have, one scale; arrays are used up."""
    target, background, dropped = chosen_of(table, other, choice, alone=alone)
    sets = _scaled(target, background, scale, dropped)
    own = sets.preparation._replace(layer=choice.layer, sizes=choice.sizes)
    return sets._replace(preparation=own)


def _check_layer(layer: str | None, *files: Path | None) -> None:
    other = [path for path in files if path is not None and path.suffix.lower() != ".h5ad"]
    if layer is not None and other:
        raise ValueError(
            f"--layer={layer} needs .h5ad files, but {other[0]} is none; leave it out."
        )


def chosen_of(
    table: Table, other: Table | None, choice: Choice, *, alone: bool = False
) -> tuple[Table, Table | None, list[str]]:
    """The two sets as the files have them, and the columns that only one of two files has."""
    if other is None:
        return *_from_one(table, choice, alone=alone), []
    target = _chosen(table, choice.conditions("target"))
    return common(target, _chosen(other, choice.conditions("background")))


def read_rows(
    path: Path,
    preparation: Preparation,
    where: Sequence[str] = (),
    *,
    told: Told = lambda path: lambda done: None,
) -> Table:
    """Read rows to apply a model to, with its features and in its units."""
    known = set(preparation.features) if preparation.named else None
    conditions = Choice(where=where).conditions("target")
    aside = _columns(conditions) | ({preparation.sizes} if preparation.sizes else set())
    words: dict[str, Any] = {"annotations": aside, "features": known, "layer": preparation.layer}
    table = read_table(path, told=told(path), **words)
    table = with_features(_chosen(table, conditions), preparation)
    return table._replace(values=preparation.scaling.applied(table.values))


def frame(table: Table, *, named: bool) -> Any:
    """Values as the estimators take them: a frame with names, or what is sparse or nameless."""
    if not named or is_sparse(table.values):
        return table.values
    return pd.DataFrame(table.values, columns=table.features, copy=False)


def _aside(choice: Choice) -> set[str]:
    conditions = choice.conditions("target") + choice.conditions("background")
    named = {name for name in (choice.by, choice.sizes) if name}
    return {*choice.annotations, *_columns(conditions), *named}


def _columns(conditions: list[Condition]) -> set[str]:
    return {condition.column for condition in conditions}


def _chosen(table: Table, conditions: list[Condition]) -> Table:
    mask = matching(table, conditions)
    if not mask.any():
        raise ValueError(
            f"{table.source} has no row that meets all of {_said(conditions)}; drop a condition."
        )
    return taken(table, mask)


def _said(conditions: list[Condition]) -> str:
    return ", ".join(f"{c.column}{'!=' if c.negated else '='}{c.value}" for c in conditions)


def _from_one(table: Table, choice: Choice, *, alone: bool) -> tuple[Table, Table | None]:
    if not choice.target:
        if alone and not choice.background:
            return _chosen(table, choice.conditions("target")), None
        raise ValueError(_which(table, choice))
    first = matching(table, choice.conditions("target"))
    second = _rest(table, choice, first)
    both = int((first & second).sum())
    if both:
        raise ValueError(
            f"{both} rows of {table.source} are target and background; "
            "make --target and --background exclude each other."
        )
    for option, mask in (("target", first), ("background", second)):
        if not mask.any():
            said = _said(choice.conditions(option)) or f"every row is a target in {choice.by}"
            raise ValueError(
                f"{table.source} has no row for the {option} ({said}); choose other rows."
            )
    return divided(table, first, second)


def _rest(table: Table, choice: Choice, first: Mask) -> Mask:
    second = matching(table, choice.conditions("background"))
    if choice.background:
        return second
    if choice.by is None:
        raise ValueError(
            "--background is not given; say which rows are background with --background "
            "COLUMN=VALUE, or name a second file."
        )
    return second & ~first & table.annotations[choice.by].notna().to_numpy()


def _which(table: Table, choice: Choice) -> str:
    if choice.by is None:
        return (
            f"{table.source} alone does not say which rows are the background; name a second file, "
            "or a column with --by COLUMN --target VALUE."
        )
    if choice.by not in table.annotations:
        return f"--by: {table.source} has no column {choice.by!r}; name one that it has."
    values = [str(value) for value in pd.unique(table.annotations[choice.by].dropna())]
    return f"--by {choice.by} needs --target VALUE; the column has the values {some(values)}."


def common(target: Table, background: Table) -> tuple[Table, Table, list[str]]:
    """Both tables with the features that both have, and those that only one has."""
    if not (target.named and background.named):
        if len(target.features) != len(background.features):
            raise ValueError(
                f"{target.source} has {len(target.features)} columns of numbers, "
                f"{background.source} has {len(background.features)}, and they have no names to "
                "tell which belong together; give both the same columns."
            )
        named = target if target.named else background
        pair = [
            t._replace(features=named.features, named=named.named) for t in (target, background)
        ]
        return pair[0], pair[1], []
    for one, other in ((target, background), (background, target)):
        odd = [name for name in one.features if name in other.annotations.columns]
        if odd:
            raise ValueError(
                f"{one.source} has numbers in column {some(odd)}, {other.source} has words; "
                f"correct one, or keep it out of the model with --annotation {odd[0]}."
            )
    shared = [name for name in target.features if name in set(background.features)]
    if not shared:
        raise ValueError(
            f"{target.source} and {background.source} have no column of numbers in common "
            f"({some(target.features)}; {some(background.features)}); give both the same names."
        )
    dropped = sorted(set(target.features) ^ set(background.features))
    return _columns_of(target, shared), _columns_of(background, shared), dropped


def _columns_of(table: Table, features: list[str]) -> Table:
    if table.features == features:
        return table
    position = {name: i for i, name in enumerate(table.features)}
    values = table.values[:, [position[name] for name in features]]
    return table._replace(values=values, features=features)


def with_features(table: Table, preparation: Preparation) -> Table:
    """The table with the features of a model, in its order."""
    wanted = preparation.features
    if not (table.named and preparation.named):
        if len(table.features) != len(wanted):
            raise ValueError(
                f"{table.source} has {len(table.features)} columns of numbers, but the model was "
                f"fitted with {len(wanted)}; give it the same columns."
            )
        return table._replace(features=wanted)
    absent = [name for name in wanted if name not in set(table.features)]
    if absent:
        raise ValueError(
            f"{table.source} lacks {len(absent)} of the {len(wanted)} columns of the model, "
            f"{some(absent)}; add them, empty where nothing is known."
        )
    return _columns_of(table, wanted)


def _scaled(target: Table, background: Table | None, method: str, dropped: list[str]) -> Sets:
    tables = [target] if background is None else [target, background]
    for table in tables:
        _refuse_unobserved(table)
    scaling = scaling_of(method, [table.values for table in tables])
    tables = [table._replace(values=scaling.applied(table.values)) for table in tables]
    named = target.named
    features = target.features if named else numbered(len(target.features))
    preparation = Preparation(list(features), named, scaling)
    return Sets(tables[0], tables[1] if background is not None else None, preparation, dropped)


def _refuse_unobserved(table: Table) -> None:
    """The estimators refuse such columns too, but know no names of sparse or nameless ones."""
    if is_sparse(table.values):
        return
    observed = np.zeros(len(table.features), dtype=bool)
    for rows in row_slices(*table.values.shape):
        observed |= ~np.isnan(table.values[rows]).all(axis=0)
        if observed.all():
            return
    absent = [name for name, seen in zip(table.features, observed, strict=True) if not seen]
    raise ValueError(
        f"{table.source} has no value in column {some(absent)} among the rows of one set; keep it "
        f"out of the model with --annotation {absent[0]}."
    )
