"""Sessions: files, choices and fits in a folder, which can be downloaded and opened again."""

import asyncio
import json
import re
import secrets
import shutil
import zipfile
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from contrastive_lvm.app.choices import (
    READING,
    Choices,
    as_json,
    command,
    fit_arguments,
    parse_choices,
    python_code,
)
from contrastive_lvm.app.jobs import Workers

LARGEST = 2 << 30  # bytes of an upload, and of all files of a session that is opened
# Features of counts above which a fit begins with ten shared dimensions: finding their number takes
# minutes for 2,000 rows of 500 genes.
MANY_COUNTS = 100
MOST_FITS = 100  # of a session, whose page lists all of them
ENDINGS = (
    ".csv", ".tsv", ".tab", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz", ".tab.gz", ".xlsx", ".xlsm",
    ".xls", ".ods", ".parquet", ".pq", ".h5ad", ".npy", ".npz", ".tar", ".tar.gz", ".tgz",
)  # fmt: skip
DAMAGES = (  # errors that damaged or forged archives raise
    zipfile.BadZipFile, zlib.error, LookupError, ValueError, TypeError, OSError, EOFError,
    RuntimeError,
)  # fmt: skip
SESSION = "session.json"
OUTPUTS = (".clvm", ".html", ".json")
MADE_ON_DEMAND = {  # by commands that read the model file of a fit
    "tables.xlsx": ["export"],
    "latents.svg": ["plot", "latents"],
    "shared.svg": ["plot", "shared"],
    "loadings.svg": ["plot", "loadings"],
    "variance.svg": ["plot", "variance"],
}


@dataclass
class Fit:
    """A command and its outcome."""

    name: str
    choices: Choices
    files: list[str]
    status: str = "waiting"  # running, done, failed or cancelled
    said: list[str] = field(default_factory=list)
    error: str | None = None
    asked: list[str] = field(default_factory=list)  # files made from it on demand


class Session:
    """The files, choices and fits of a page."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        folder.mkdir(mode=0o700)
        self.folder, self.workers = folder, workers
        self.files: list[Path] = []  # the target, or both sets, and then the background
        self.choices = Choices()
        self.fits: dict[str, Fit] = {}
        self.read: dict[str, dict[str, Any]] = {}  # what is known about files, by their names
        self.tasks: dict[str, asyncio.Task[None]] = {}

    # --- files and choices ----------------------------------------------------------------------

    def place(self, given: str) -> Path:
        """Return the path for an upload, or refuse its name."""
        name = file_name(given)
        if len(self.files) == 2:
            raise ValueError("there are two files already; remove one first.")
        stem, ending = name[: -len(_ending(name))], _ending(name)
        while (self.folder / name).exists() or any(own.name == name for own in self.files):
            stem += "-2"
            name = stem + ending
        return self.folder / name

    async def add(self, path: Path) -> None:
        """Add a file and inspect it."""
        if len(self.files) == 2:  # another upload was quicker
            raise ValueError("there are two files already; remove one first.")
        self.files.append(path)
        await self.look(path)
        found = self.read.get(path.name, {"error": "it was removed"})
        if len(self.files) == 1 and "error" not in found:  # the answers begin with good guesses
            uneven = found["uneven"] and found["values"] == "measurements"
            many = found["values"] == "counts" and found["features"] > MANY_COUNTS
            given = {"values": found["values"], "scale": "standard" if uneven else "none"}
            given |= {"n_shared": "10" if many else "auto"}
            self.choices = Choices(**as_json(self.choices) | given)
        if len(self.files) == 2:
            self._forget("by", "target", "background", "where", "replicates")

    def begin(self, path: Path) -> None:
        """Add a file without waiting for its inspection."""

        async def add() -> None:
            """Take the file in and drop the task."""
            await self.add(path)
            del self.tasks[""]

        self.tasks[""] = asyncio.create_task(add())

    def remove(self, name: str) -> None:
        """Remove a file from the session; a file named on the command line stays on the disk."""
        for path in [own for own in self.files if own.name == name]:
            self.files.remove(path)
            self.read.pop(name, None)
            if path.parent == self.folder:
                path.unlink(missing_ok=True)
        if not self.files:
            self.choices = Choices()

    def swap(self) -> None:
        """Exchange target and background."""
        self.files.reverse()

    async def look(self, path: Path) -> None:
        """Ask a process to inspect a file."""
        chosen = {name: getattr(self.choices, name) for name in READING}
        question = {"file": self._named(path), "choices": chosen}
        found = await self.workers.answer(question, self.folder)
        if path in self.files:
            self.read[path.name] = found

    async def choose(self, given: object) -> None:
        """Take new choices, and inspect the files again if their layout has changed."""
        before, self.choices = self.choices, parse_choices(given)
        if any(getattr(before, name) != getattr(self.choices, name) for name in READING):
            await asyncio.gather(*(self.look(path) for path in self.files))

    def _forget(self, *names: str) -> None:
        usual = as_json(Choices())
        self.choices = Choices(**as_json(self.choices) | {name: usual[name] for name in names})

    def _named(self, path: Path) -> str:
        return path.name if path.parent == self.folder else str(path)

    # --- fits -----------------------------------------------------------------------------------

    def start(self) -> Fit:
        """Begin a fit with the present choices."""
        if not self.files:
            raise ValueError("there is no file yet; drop one on the page.")
        if len(self.fits) >= MOST_FITS:
            raise ValueError(f"a session has at most {MOST_FITS} fits; open a new page.")
        number = 1 + max((int(name[3:]) for name in self.fits), default=0)
        fit = Fit(f"fit{number}", self.choices, [self._named(path) for path in self.files])
        self.fits[fit.name] = fit
        self.tasks[fit.name] = asyncio.create_task(self._run(fit))
        return fit

    async def _run(self, fit: Fit) -> None:
        def heard(line: str) -> None:
            fit.status = "running"
            fit.said = [*fit.said[-20:], line]

        arguments = [*fit_arguments(fit.choices, [*fit.files], fit.name), "--json"]
        output = self.folder / f"{fit.name}.json"
        try:
            fit.error = await self.workers.command(arguments, self.folder, output, heard)
            fit.status = "done" if fit.error is None else "failed"
        except asyncio.CancelledError:
            fit.status = "cancelled"
        except (OSError, ValueError) as error:
            fit.status, fit.error = "failed", f"The computation could not be run ({error})."
        finally:
            self.tasks.pop(fit.name, None)
            if fit.status != "done":
                _remove_outputs(self.folder, fit.name)

    async def make(self, fit: Fit, what: str) -> Path:
        """Make tables or a figure of a fit, by the command that `commands` then lists."""
        path = self.folder / f"{secrets.token_hex(4)}-{what}"
        arguments = [*MADE_ON_DEMAND[what], f"{fit.name}.clvm", "--yes", f"--output={path.name}"]
        printed = path.with_suffix(".txt")
        try:
            failed = await self.workers.command(arguments, self.folder, printed, lambda _: None)
        finally:
            printed.unlink(missing_ok=True)
        if failed is not None:
            path.unlink(missing_ok=True)
            raise ValueError(failed)
        if what not in fit.asked:
            fit.asked.append(what)
        return path

    async def cancel(self, name: str) -> None:
        """End a fit that runs or waits; remove one that has ended."""
        task = self.tasks.get(name)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.fits[name].status = "cancelled"
        else:
            self.fits.pop(name)
            _remove_outputs(self.folder, name)

    async def agreement(self, first: str, second: str) -> dict[str, Any]:
        """Compare two fits."""
        models = [f"{self.fits[name].name}.clvm" for name in (first, second)]
        return await self.workers.answer({"models": models}, self.folder)

    async def close(self) -> None:
        """End all fits and remove the folder."""
        tasks = list(self.tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- what the page shows, and files that are downloaded ---------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything that the page shows, except the results of fits."""
        return {
            "files": [{"name": own.name, "read": self.read.get(own.name)} for own in self.files],
            "choices": as_json(self.choices),
            "command": self._command(self.choices, list(map(self._named, self.files)), "model"),
            "fits": [
                {
                    **asdict(fit),
                    "command": self._command(fit.choices, fit.files, fit.name),
                    "code": self.code(fit),
                }
                for fit in self.fits.values()
            ],
        }

    def _command(self, choices: Choices, files: list[str], name: str) -> str:
        return command(fit_arguments(choices, [*files], name)) if files else ""

    def code(self, fit: Fit) -> str:
        """Return the Python code of a fit."""
        return python_code(fit.choices, [*fit.files], fit.name)

    def commands(self) -> str:
        """Return the commands of all fits and of what was made of them, one to a line."""
        lines = []
        for fit in self.fits.values():
            if fit.status == "done":
                lines.append(self._command(fit.choices, fit.files, fit.name))
            for what in fit.asked:
                own = [f"{fit.name}.clvm", "--yes", f"--output={fit.name}-{what}"]
                lines.append(command([*MADE_ON_DEMAND[what], *own]))
        return "".join(f"{line}\n" for line in lines)

    def write(self, path: Path) -> None:
        """Write the session to a file that `open_session` reads."""
        done = [fit for fit in self.fits.values() if fit.status == "done"]
        kept = [
            {"name": fit.name, "choices": as_json(fit.choices), "files": _names(fit.files)}
            for fit in done
        ]
        names = [own.name for own in self.files]
        facts = {"files": names, "choices": as_json(self.choices), "fits": kept}
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr(SESSION, json.dumps(facts, indent=1))
            for own in self.files:
                archive.write(own, own.name)
            for fit in done:
                for ending in OUTPUTS:
                    archive.write(self.folder / f"{fit.name}{ending}", f"{fit.name}{ending}")

    async def open(self, path: Path) -> None:
        """Replace this session by one that was downloaded; one that is damaged changes nothing."""
        if self.tasks:
            raise ValueError("a fit is running; cancel it before you open a session.")
        fresh = self.folder / f"opened-{secrets.token_hex(4)}"
        try:
            fresh.mkdir(mode=0o700)
            with zipfile.ZipFile(path) as archive:
                files, choices, fits = _parse_session(archive)
                names = [*files, *(f"{fit}{ending}" for fit in fits for ending in OUTPUTS)]
                await asyncio.to_thread(_extract, archive, names, fresh)
            if self.tasks:
                raise ValueError("a fit was begun meanwhile")
            for name in names:
                (fresh / name).replace(self.folder / name)
        except DAMAGES as error:
            raise ValueError(
                f"{path.name} is not a session that can be opened ({_clause(error)}); drop one "
                "that was saved on this page."
            ) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        self.files, self.choices, self.fits = [self.folder / name for name in files], choices, fits
        await asyncio.gather(*(self.look(own) for own in self.files))


def file_name(given: str) -> str:
    """Return a name under which an upload can be kept, or refuse it.

    >>> file_name("../../-my data.csv")
    'my data.csv'
    """
    bare = re.split(r"[/\\]", given)[-1]
    name = "".join(c if c.isprintable() and c not in '<>:"|?*' else "_" for c in bare)
    name = name.lstrip("-. ").strip()
    ending = _ending(name)
    if not ending or len(name) == len(ending):
        raise ValueError(
            f"{bare[:80]!r} has an unknown ending; drop .csv, .tsv, .xlsx, .parquet, "
            ".h5ad, .npy or .npz, or a session that was saved."
        )
    return name[: -len(ending)][:80] + ending


def _ending(name: str) -> str:
    found = [ending for ending in ENDINGS if name.lower().endswith(ending)]
    return name[-len(max(found, key=len)) :] if found else ""


def _names(files: list[str]) -> list[str]:
    return [Path(name).name for name in files]


def _remove_outputs(folder: Path, name: str) -> None:
    for ending in OUTPUTS:
        (folder / f"{name}{ending}").unlink(missing_ok=True)


def _parse_session(archive: zipfile.ZipFile) -> tuple[list[str], Choices, dict[str, Fit]]:
    """Parse the facts of a saved session, or refuse them."""
    if sum(entry.file_size for entry in archive.infolist()) > LARGEST:
        raise ValueError("it is too large")
    if archive.getinfo(SESSION).file_size > 1 << 24:
        raise ValueError("it is too large")
    said = json.loads(archive.read(SESSION))
    files, fits = _checked_files(said["files"]), {}
    for own in said["fits"][:MOST_FITS]:
        name = str(own["name"])
        if not re.fullmatch(r"fit[1-9][0-9]{0,5}", name):
            raise ValueError("a fit has no name")
        chosen, names = parse_choices(own["choices"]), _checked_files(own["files"])
        fits[name] = Fit(name, chosen, names, status="done")
    return files, parse_choices(said["choices"]), fits


def _checked_files(given: object) -> list[str]:
    if not isinstance(given, list) or len(given) > 2 or len(set(map(str, given))) != len(given):
        raise ValueError("its files are not named")
    if any(not isinstance(name, str) or file_name(name) != name for name in given):
        raise ValueError("a file has another name than those of data")
    return given


def _extract(archive: zipfile.ZipFile, names: list[str], folder: Path) -> None:
    """Write files of an archive, by names that were checked and up to their stated sizes."""
    for name in names:
        entry = archive.getinfo(name)
        with archive.open(entry) as source, (folder / name).open("wb") as place:
            _copy(source, place, entry.file_size)


def _copy(source: IO[bytes], place: IO[bytes], size: int) -> None:
    while part := source.read(1 << 20):
        size -= len(part)
        if size < 0:
            raise ValueError("a file is larger than it says")
        place.write(part)


def _clause(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")[:200] or type(error).__name__
