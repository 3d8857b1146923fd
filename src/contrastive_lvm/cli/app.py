"""`clvm app`: a page in the browser of this machine."""

import secrets
import socket
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from contrastive_lvm.cli.output import say

Port = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=65535, help="Port to listen on; 0 for any free port."),
]


def app(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A table, which is read in place, or a saved session."),
    ] = None,
    *,
    port: Port = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address instead of opening it.")
    ] = False,
) -> None:
    """Fit models on a page in your browser, without a terminal.

    Nothing leaves this machine: the server listens on 127.0.0.1 only, and the address contains a
    secret token. Files are kept in a private folder, which is removed when the page is closed or
    this command ends (Ctrl-C).
    """
    try:
        import uvicorn

        from contrastive_lvm.app.server import Server
    except ImportError as error:
        raise ImportError(
            "clvm app needs Starlette and uvicorn, which are not installed; "
            "pip install 'contrastive-lvm[app]'."
        ) from error
    if file is not None and not file.exists():
        raise FileNotFoundError(f"{file} does not exist; check its name.")
    with (
        _listen(port) as listener,
        tempfile.TemporaryDirectory(prefix="clvm-", ignore_cleanup_errors=True) as folder,
    ):
        number, token = listener.getsockname()[1], secrets.token_urlsafe(32)
        address = f"http://127.0.0.1:{number}/?token={token}"
        server = Server(Path(folder), None if file is None else file.resolve())
        config = uvicorn.Config(
            server.app(token, number),
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=2,
            ws="none",
        )
        say(f"{address}\nThe page works while this command runs; Ctrl-C ends it.", err=True)
        if not no_browser:
            _open(address, Path(folder))
        uvicorn.Server(config).run(sockets=[listener])


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)  # a browser that is quicker than the server waits for it
    except OSError as error:
        listener.close()
        raise OSError(
            f"--port={port} cannot be used ({error.strerror}); leave it out to use any free port."
        ) from error
    return listener


def _open(address: str, folder: Path) -> None:
    """Open the browser on a private file that leads to the address.

    Other users can see the arguments of processes, so the token must not be among them.
    """
    import webbrowser

    place = folder / "open.html"
    place.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0;url={address}">', encoding="utf-8"
    )
    webbrowser.open(place.as_uri())
