"""`clvm datasets`: which files of real data are here, and where the others come from."""

import json
from typing import Annotated

import typer


def datasets(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a list.")] = False,
) -> None:
    """List the real data that experiments use: what is here, and where the rest comes from."""
    found = _found()
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for file in found:
        typer.echo(f"{file['state']:8}{file['file']}")
        if file["state"] != "here":
            typer.echo(f"        from {file['from']}")
    typer.echo("Files are looked for in $CONTRASTIVE_LVM_DATA, then in the user's cache.", err=True)


def _found() -> list[dict[str, str]]:
    from contrastive_lvm.datasets.download import SOURCES

    return [
        {"file": name, "state": _state(name), "from": source.address or f"you: {source.remark}"}
        for name, source in SOURCES.items()
    ]


def _state(name: str) -> str:
    from contrastive_lvm.datasets.download import present

    try:
        return "here" if present(name) else "absent"
    except ValueError:  # its checksum is another
        return "damaged"
