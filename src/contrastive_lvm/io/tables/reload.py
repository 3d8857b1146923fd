"""The rows of a fit once more: where they came from, and the same preparation."""

from pathlib import Path
from typing import Any, NamedTuple

from contrastive_lvm.io.tables.prepare import (
    Choice,
    Preparation,
    Sets,
    Told,
    chosen_of,
    read_tables,
    with_features,
)
from contrastive_lvm.io.tables.table import Table

LISTS, SINGLE = ("target", "background", "where", "annotations"), ("by", "layer", "sizes")


class Origin(NamedTuple):
    """Files and conditions, as they were given."""

    target: Path
    background: Path | None
    choice: Choice

    def facts(self) -> dict[str, Any]:
        """For a model file."""
        files = [self.target] if self.background is None else [self.target, self.background]
        words = {
            k: list(v) if isinstance(v, list | tuple) else v
            for k, v in self.choice._asdict().items()
        }
        return {"files": [str(file) for file in files], "choice": words}


def origin_of(preparation: Preparation, model: Path) -> Origin:
    """Where a model's rows came from; refused if its file does not say."""
    facts = preparation.origin
    if facts is None:
        raise ValueError(f"{model} does not say which files it was fitted to; name them after it.")
    try:
        files, words = [Path(str(name)) for name in facts["files"]], facts["choice"]
        own: dict[str, Any] = {name: [str(text) for text in words[name]] for name in LISTS}
        own |= {name: None if words[name] is None else str(words[name]) for name in SINGLE}
        target, background = [*files, None][:2]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{model} is damaged: its preparation is not whole.") from error
    if target is None:
        raise ValueError(f"{model} is damaged: its preparation is not whole.")
    return Origin(target, background, Choice(**own))


def read_again(
    preparation: Preparation,
    origin: Origin,
    *,
    alone: bool = False,
    told: Told = lambda path: lambda done: None,
) -> Sets:
    """Both sets with the features of a model and in its units."""
    known = set(preparation.features) if preparation.named else None
    tables = read_tables(*origin, features=known, told=told)
    target, background, _ = chosen_of(*tables, origin.choice, alone=alone)
    other = None if background is None else _prepared(background, preparation)
    return Sets(_prepared(target, preparation), other, preparation, [])


def _prepared(table: Table, preparation: Preparation) -> Table:
    table = with_features(table, preparation)
    return table._replace(values=preparation.scaling.applied(table.values))
