"""`clvm datasets`: the files of real data, and where to get them."""

from contrastive_lvm.cli.options import Json
from contrastive_lvm.cli.output import as_text, say


def datasets(*, as_json: Json = False) -> None:
    """List the files of real data that the experiments use, and where to get those missing."""
    found = _found()
    if as_json:
        say(as_text(found))
        return
    for file in found:
        say(f"{file['state']:8}{file['file']}")
        if file["state"] != "here":
            say(f"        from {file['from']}")
    say("Files are searched for in $CONTRASTIVE_LVM_DATA and the user cache.", err=True)


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
