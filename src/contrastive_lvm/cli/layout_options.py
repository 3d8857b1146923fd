"""Options of all commands that read tables: how a file is laid out."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

import typer

from contrastive_lvm.io.tables.layout import layout_of

Words = list[str] | None
OPTIONS: dict[str, Any] = {
    "index": Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column that names the rows.")
    ],
    "drop": Annotated[
        Words, typer.Option(metavar="COLUMN", help="Leave a column out altogether. Repeatable.")
    ],
    "na": Annotated[
        Words,
        typer.Option(
            metavar="VALUE",
            help="Value that stands for a missing entry among numbers, beside NA, #N/A, n.d., -, ? "
            "and others that the guide lists. Repeatable.",
        ),
    ],
    "decimal": Annotated[
        str | None,
        typer.Option(
            metavar="MARK",
            help="Decimal mark of a text file, point or comma, where its numbers leave it open.",
        ),
    ],
    "skip_rows": Annotated[
        str | None,
        typer.Option(
            metavar="LINES",
            help="Lines of a file to leave out, by their numbers from 1: 2 for units below the "
            "names, 1-3 for three lines above them.",
        ),
    ],
    "transpose": Annotated[
        bool, typer.Option("--transpose", help="Lines of the file are features, columns are rows.")
    ],
    "sheet": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Sheet of a workbook (.xlsx); by default, the first."),
    ],
}


def with_layout(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a layout, which it takes as its argument `layout`.

    It is None if none of the options is given.
    """
    own = inspect.signature(command)

    @wraps(command)
    def run(**given: Any) -> None:
        said = {name: given.pop(name) for name in OPTIONS}
        layout = layout_of(
            tuple(said["na"] or ()),
            said["skip_rows"],
            said["decimal"],
            said["sheet"],
            said["index"],
            tuple(said["drop"] or ()),
            transpose=said["transpose"],
        )
        command(**given, layout=layout if any(said.values()) else None)

    kind = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(name, kind, default=False if name == "transpose" else None, annotation=a)
        for name, a in OPTIONS.items()
    ]
    parameters = [p for p in own.parameters.values() if p.name != "layout"] + added
    run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
