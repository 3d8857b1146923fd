"""`clvm datasets`: the files of real data, and where to get them."""

import json

import typer

from contrastive_lvm.cli.options import Json


def datasets(*, as_json: Json = False) -> None:
    """List the files of real data that the experiments use, and where to get those missing."""
    found = _found()
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    for file in found:
        typer.echo(f"{file['state']:8}{file['file']}")
        if file["state"] != "here":
            typer.echo(f"        from {file['from']}")
    typer.echo("Files are searched for in $CONTRASTIVE_LVM_DATA and the user cache.", err=True)


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
    except ValueError:  # the checksum differs
        return "damaged"
