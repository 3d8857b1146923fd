"""Outputs: whole or not at all, never in place of what is no file, never over an input."""

import errno
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from contrastive_lvm.io.atomic import destination, write_atomically, write_text_atomically


def special(kind: str, path: Path) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("name", ["out.csv", "link.csv"])
def test_pipes_and_sockets_are_refused_and_stay(kind: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    special(kind, path)
    mode = path.stat().st_mode
    given = tmp_path / name
    if given != path:
        given.symlink_to(path)
    for write in (destination, lambda place: write_text_atomically(place, "rows")):
        with pytest.raises(OSError, match=f"{given.name} is a {kind}, not a file; choose another"):
            write(given)
    assert path.stat().st_mode == mode
    assert given.is_symlink() == (given != path)


def test_devices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device is a fake: nothing that runs as root should aim at a true one."""
    path = tmp_path / "null"
    path.write_text("device")
    true = Path.stat

    def stat_of(self: Path, **options: bool) -> os.stat_result | SimpleNamespace:
        return SimpleNamespace(st_mode=stat.S_IFCHR | 0o666) if self == path else true(self)

    monkeypatch.setattr(Path, "stat", stat_of)
    with pytest.raises(OSError, match="null is a device, not a file"):
        write_text_atomically(path, "rows")
    monkeypatch.undo()
    assert path.read_text() == "device"


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("by", ["link", "descriptor"])
def test_files_that_are_open_as_standard_output_are_refused(by: str, tmp_path: Path) -> None:
    """Replacing the file behind /dev/stdout would lose what a command prints."""
    log = tmp_path / "log.txt"
    with log.open("w") as file:
        given = Path(f"/proc/self/fd/{file.fileno()}")
        if by == "link":
            (tmp_path / "out.csv").symlink_to(given)
            given = tmp_path / "out.csv"
        with pytest.raises(OSError, match=f"{given.name} is a device, not a file"):
            write_text_atomically(given, "rows")
        file.write("kept")
    assert log.read_text() == "kept"


@pytest.mark.parametrize("link", ["same", "symbolic", "hard", "spelling"])
def test_outputs_that_are_inputs_are_refused(link: str, tmp_path: Path) -> None:
    source, output = tmp_path / "rows.csv", tmp_path / "out.csv"
    source.write_text("a\n1\n")
    if link == "symbolic":
        output.symlink_to(source)
    elif link == "hard":
        output.hardlink_to(source)
    else:
        output = source if link == "same" else tmp_path / ".." / tmp_path.name / "rows.csv"
    with pytest.raises(ValueError, match="is also an input; choose another file"):
        destination(output, inputs=[None, source])
    assert source.read_text() == "a\n1\n"


def test_two_outputs_are_two_files(tmp_path: Path) -> None:
    one, two = tmp_path / "out", tmp_path / "link"
    two.symlink_to(one)  # of a file that does not exist yet
    with pytest.raises(ValueError, match=r"--report=.*link is also another output"):
        destination(two, "--report", outputs=[one])
    assert destination(tmp_path / "other", outputs=[one]) == tmp_path / "other"


def test_files_of_a_folder_that_is_read_are_inputs(tmp_path: Path) -> None:
    (tmp_path / "matrix.mtx").write_text("counts")
    with pytest.raises(ValueError, match="also an input"):
        destination(tmp_path / "matrix.mtx", inputs=[tmp_path])
    assert destination(tmp_path / "new.csv", inputs=[tmp_path]) == tmp_path / "new.csv"


def test_links_are_followed_and_permissions_kept(tmp_path: Path) -> None:
    (tmp_path / "place").mkdir()
    real, link = tmp_path / "place" / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    real.chmod(0o640)
    link.symlink_to(real)
    write_text_atomically(link, "new")
    assert link.is_symlink()
    assert real.read_text() == "new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert sorted(tmp_path.rglob("*")) == [link, tmp_path / "place", real]


def test_half_characters_do_not_end_a_page(tmp_path: Path) -> None:
    write_text_atomically(tmp_path / "page.html", "rows of \udcff.csv")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == r"rows of \udcff.csv"


def test_a_read_only_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(**_: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    path = tmp_path / "out.csv"
    path.write_text("precious")
    monkeypatch.setattr("tempfile.TemporaryFile", denied)  # a superuser may write anywhere
    with pytest.raises(OSError, match=r"cannot be written \(Read-only file system\); choose"):
        write_text_atomically(path, "rows")
    assert path.read_text() == "precious"


FULL = """
import resource, sys
from pathlib import Path
from contrastive_lvm.io.atomic import write_text_atomically
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_text_atomically(Path(sys.argv[1]), "rows" * 1000)
except OSError as error:
    print(error)
"""


def test_a_file_that_may_not_grow_and_no_folder_for_temporary_files(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("precious")
    environment = os.environ | {"TMPDIR": str(tmp_path / "absent")}
    command = [sys.executable, "-c", FULL, str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "out.csv cannot be written (File too large); choose another file." in done.stdout
    assert path.read_text() == "precious"
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_text("half")
        raise SystemExit(143)

    with pytest.raises(SystemExit):
        write_atomically(tmp_path / "out.csv", fails)
    assert list(tmp_path.iterdir()) == []
