"""Computations in processes of their own, which can be watched and ended."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

LONGEST_ANSWER = 1 << 26  # bytes
# Arguments go through stdin, because other users of a machine can list those of a process.
COMMAND = """
import json, logging, sys
logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
logging.getLogger("contrastive_lvm").setLevel(logging.INFO)
from contrastive_lvm.cli.main import run
arguments = json.load(sys.stdin)
sys.stdin.close()
sys.exit(run(arguments))
"""
QUESTION = "from contrastive_lvm.app.inspect_files import main; main()"


class Workers:
    """Run processes, a few at a time."""

    def __init__(self) -> None:
        at_once = os.cpu_count() or 1
        self.fits = asyncio.Semaphore(at_once)
        self.questions = asyncio.Semaphore(at_once)  # questions do not wait for fits

    async def command(
        self, arguments: list[str], folder: Path, output: Path, heard: Callable[[str], None]
    ) -> str | None:
        """Run a `clvm` command in a folder; return None, or the sentence that says what failed.

        Its output goes to a file, and `heard` is called with each line of its messages.
        """
        said: deque[str] = deque(maxlen=200)  # its last lines
        async with self.fits:
            heard("Starting ...")
            with output.open("wb") as stdout:
                process = await _start(COMMAND, folder, stdout.fileno())
            try:
                await _give(process, arguments)
                assert process.stderr is not None
                async for line in process.stderr:
                    said.append(line.decode("utf-8", "replace").rstrip())
                    heard(said[-1])
                code = await process.wait()
            finally:
                await _end(process)
        return None if code == 0 else _failure(code, list(said))

    async def answer(self, question: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Ask a process about files in a folder; refusals are under `error`."""
        async with self.questions:
            process = await _start(QUESTION, folder, PIPE)
            try:
                await _give(process, question)
                assert process.stdout is not None
                text, said = await asyncio.gather(process.stdout.read(), _read(process))
                code = await process.wait()
            finally:
                await _end(process)
        if code == 0 and len(text) <= LONGEST_ANSWER:
            found: dict[str, Any] = json.loads(text)
            return found
        return {"error": _failure(code, said)}


async def _start(code: str, folder: Path, stdout: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        cwd=folder,
        stdin=PIPE,
        stdout=stdout,
        stderr=PIPE,
        limit=1 << 20,
        start_new_session=True,
    )


async def _end(process: Process) -> None:
    """End a process and those that it has started."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()
        await process.wait()


async def _give(process: Process, what: object) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(what).encode())
        await process.stdin.drain()
        process.stdin.close()


async def _read(process: Process) -> list[str]:
    assert process.stderr is not None
    text = await process.stderr.read()
    return text[-LONGEST_ANSWER:].decode("utf-8", "replace").splitlines()


def _failure(code: int, said: list[str]) -> str:
    """Return the sentence with which a process has ended."""
    refused = [line.removeprefix("clvm: ") for line in said if line.startswith("clvm: ")]
    if refused:
        return refused[-1]
    if code < 0:
        name = signal.Signals(-code).name
        why = ", most likely because memory ran out" if name == "SIGKILL" else ""
        return f"The computation was ended by {name}{why}; try fewer rows or features."
    last = f" ({said[-1]})" if said else ""
    return f"The computation ended unexpectedly{last}; try other choices."
