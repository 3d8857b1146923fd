"""The web server of `clvm app`: one page, on this machine only, for requests with the token.

Requests must name this machine and port (Host), must not come from another site (Origin), and must
have the token, which the address gives once and a cookie keeps. Nothing is loaded from elsewhere.
"""

import asyncio
import contextlib
import hmac
import json
import secrets
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contrastive_lvm.app.jobs import Workers
from contrastive_lvm.app.sessions import LARGEST, MADE_ON_DEMAND, OUTPUTS, Session

GRACE = 120.0  # seconds in which a closed page may be opened again, as a reload does
STATIC = {
    "app.js": ("contrastive_lvm.app", "text/javascript"),
    "app.css": ("contrastive_lvm.app", "text/css"),
    "page.css": ("contrastive_lvm.report", "text/css"),
}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A report may come from a session of someone else: it is shown as a page without an origin.
REPORT_POLICY = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'self'"
)
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
NO_TOKEN = "This page needs the address that clvm app has printed, with its token.\n"
ENTER = '<!doctype html><meta http-equiv="refresh" content="0;url=/"><title>clvm</title>'
Answer = Callable[[Request, Session], Awaitable[Response]]


class Guard:
    """Let requests through that come from the page, and give all answers their headers."""

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        self.hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
        self.cookie = f"clvm-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**HEADERS, "Content-Security-Policy": PAGE_POLICY}.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refusal(Request(scope))
        await (refused or self.app)(scope, receive, send_safely)

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that does not come from the page."""
        headers = request.headers
        host, origin = headers.get("host", ""), headers.get("origin")
        if host not in self.hosts:
            return PlainTextResponse("This server answers on 127.0.0.1 only.\n", 403)
        writes = request.method not in ("GET", "HEAD")
        if (origin is not None or writes) and origin != f"http://{host}":
            return PlainTextResponse("This request comes from another site.\n", 403)
        given = request.query_params.get("token")
        if given is not None and request.url.path == "/" and self._is_token(given):
            answer = Response(ENTER, media_type="text/html")
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return answer
        if not self._is_token(_cookies(headers, self.cookie)):
            return PlainTextResponse(NO_TOKEN, 403)
        return None

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _cookies(headers: Headers, name: str) -> str:
    for part in headers.get("cookie", "").split(";"):
        own, _, value = part.strip().partition("=")
        if own == name:
            return value
    return ""


class Server:
    """Sessions in a private folder, and the answers to requests about them."""

    def __init__(self, folder: Path, file: Path | None = None) -> None:
        self.folder, self.file = folder, file
        self.sessions: dict[str, Session] = {}
        self.closing: dict[str, asyncio.Task[None]] = {}

    def app(self, token: str, port: int) -> ASGIApp:
        """Return the application."""
        routes = [
            Route("/", self.new, methods=["GET"]),
            *(Route(f"/{name}", _static, methods=["GET"]) for name in STATIC),
            self._route("", _page),
            self._route("/state", _state),
            self._route("/files", _upload, "PUT"),
            self._route("/files/{name}", _remove_file, "DELETE"),
            self._route("/swap", _swap, "POST"),
            self._route("/choices", _choose, "PUT"),
            self._route("/fits", _start, "POST"),
            self._route("/fits/{name}", _cancel, "DELETE"),
            self._route("/fits/{name}.{ending}", _output),
            self._route("/fits/{name}/{what}", _made),
            self._route("/compare", _compare),
            self._route("/session.zip", _save),
            self._route("/commands.sh", _commands),
            self._route("/closed", self.closed, "POST"),
        ]
        errors: dict[Any, Any] = {ValueError: _refuse, TypeError: _refuse, OSError: _refuse}
        app = Starlette(routes=routes, exception_handlers=errors, lifespan=self._lifespan)
        return Guard(app, token, port)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        self.workers = Workers()
        try:
            yield
        finally:
            for task in self.closing.values():
                task.cancel()
            await asyncio.gather(*(own.close() for own in self.sessions.values()))

    def _route(self, path: str, answer: Answer, method: str = "GET") -> Route:
        """Answer requests about a session, and cancel a pending removal of it."""

        async def answer_session(request: Request) -> Response:
            key = request.path_params["session"]
            if key not in self.sessions:
                raise HTTPException(404, "This session has ended; open a new page.")
            if answer != self.closed and key in self.closing:
                self.closing.pop(key).cancel()
            return await answer(request, self.sessions[key])

        return Route(f"/s/{{session}}{path}", answer_session, methods=[method])

    async def new(self, _: Request) -> Response:
        """Begin a session."""
        if len(self.sessions) >= 200:
            raise ValueError("there are too many open pages; close some.")
        key = secrets.token_urlsafe(12)
        session = self.sessions[key] = Session(self.folder / key, self.workers)
        if self.file is not None:
            if self.file.suffix.lower() == ".zip":
                await session.open(self.file)
            else:
                session.begin(self.file)
        return Response(status_code=303, headers={"Location": f"/s/{key}"})

    async def closed(self, request: Request, session: Session) -> Response:
        """Remove a session whose page was closed, unless it is opened again soon."""
        key = request.path_params["session"]

        async def close_later() -> None:
            """Forget the session after a while."""
            await asyncio.sleep(GRACE)
            self.sessions.pop(key, None)
            self.closing.pop(key, None)
            await session.close()

        if key not in self.closing:
            self.closing[key] = asyncio.create_task(close_later())
        return Response(status_code=204)


async def _static(request: Request) -> Response:
    name = request.url.path[1:]
    package, kind = STATIC[name]
    return Response(_web(package, name), media_type=kind)


def _web(package: str, name: str) -> str:
    return files(package).joinpath("web", name).read_text(encoding="utf-8")


async def _refuse(_: Request, error: Exception) -> Response:
    """Answer with the sentence of an error."""
    sentence = " ".join(str(error).split())
    return PlainTextResponse(sentence[:1].upper() + sentence[1:], 400)


async def _page(_: Request, __: Session) -> Response:
    return Response(_web("contrastive_lvm.app", "page.html"), media_type="text/html")


async def _state(_: Request, session: Session) -> Response:
    return JSONResponse(session.state())


async def _upload(request: Request, session: Session) -> Response:
    """Write an upload to the disk as it arrives, and inspect it."""
    name = request.query_params.get("name", "")
    is_session = name.lower().endswith(".zip")
    path = session.folder / "opened.zip" if is_session else session.place(name)
    claimed = int(request.headers.get("content-length", "0"))
    if claimed > min(LARGEST, shutil.disk_usage(session.folder).free // 2):
        raise HTTPException(413, _too_large())
    try:
        await _receive(request, path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    if is_session:
        try:
            await session.open(path)
        finally:
            path.unlink(missing_ok=True)
    else:
        await session.add(path)
    return JSONResponse(session.state())


async def _receive(request: Request, path: Path) -> None:
    size = 0
    with path.open("wb") as place:
        try:
            async for part in request.stream():
                size += len(part)
                if size > LARGEST:
                    raise HTTPException(413, _too_large())
                place.write(part)
        except ClientDisconnect as error:
            raise ValueError("the upload was not complete; drop the file again.") from error


def _too_large() -> str:
    return (
        f"The file is larger than {LARGEST >> 30} GB or than the free space on the disk; name it "
        "on the command line (clvm app FILE), which reads it where it is."
    )


async def _remove_file(request: Request, session: Session) -> Response:
    session.remove(request.path_params["name"])
    return JSONResponse(session.state())


async def _swap(_: Request, session: Session) -> Response:
    session.swap()
    return JSONResponse(session.state())


async def _choose(request: Request, session: Session) -> Response:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > 1 << 20:
            raise HTTPException(413, "The choices are too long.")
    await session.choose(json.loads(body))
    return JSONResponse(session.state())


async def _start(_: Request, session: Session) -> Response:
    session.start()
    return JSONResponse(session.state())


def _known(session: Session, name: str | None) -> str:
    if name is None or name not in session.fits:
        raise HTTPException(404, "There is no such fit.")
    return name


async def _cancel(request: Request, session: Session) -> Response:
    await session.cancel(_known(session, request.path_params["name"]))
    return JSONResponse(session.state())


async def _output(request: Request, session: Session) -> Response:
    name, ending = (request.path_params[part] for part in ("name", "ending"))
    fit = session.fits[_known(session, name)]
    if ending == "py":
        return _download(session.code(fit), f"{name}.py")
    if f".{ending}" not in OUTPUTS or fit.status != "done":
        raise HTTPException(404, "There is no such file.")
    path = session.folder / f"{name}.{ending}"
    if ending == "json" and "save" not in request.query_params:
        return FileResponse(path, media_type="application/json")
    if ending == "html" and "save" not in request.query_params:
        policy = {"Content-Security-Policy": REPORT_POLICY}
        return FileResponse(path, media_type="text/html", headers=policy)
    return FileResponse(path, media_type="application/octet-stream", filename=path.name)


async def _made(request: Request, session: Session) -> Response:
    """Answer with tables or a figure of a fit, which are made on demand."""
    name, what = (request.path_params[part] for part in ("name", "what"))
    fit = session.fits[_known(session, name)]
    if what not in MADE_ON_DEMAND or fit.status != "done":
        raise HTTPException(404, "There is no such file.")
    path = await session.make(fit, what)
    gone = BackgroundTask(path.unlink, missing_ok=True)
    kind = "application/octet-stream"
    return FileResponse(path, media_type=kind, filename=f"{name}-{what}", background=gone)


async def _compare(request: Request, session: Session) -> Response:
    names = [_known(session, request.query_params.get(side)) for side in ("first", "second")]
    for name in names:
        if session.fits[name].status != "done":
            raise HTTPException(404, "Only fits that are done can be compared.")
    return JSONResponse(await session.agreement(*names))


async def _save(_: Request, session: Session) -> Response:
    path = session.folder / f"save-{secrets.token_hex(4)}.zip"
    await asyncio.to_thread(session.write, path)
    gone = BackgroundTask(path.unlink, missing_ok=True)
    return FileResponse(path, filename="clvm-session.zip", background=gone)


async def _commands(_: Request, session: Session) -> Response:
    return _download(session.commands(), "commands.sh")


def _download(text: str, name: str) -> Response:
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return PlainTextResponse(text, headers=disposition)
