"""Work that begins before its result is wanted."""

import threading
from pathlib import Path

import pytest

from contrastive_lvm.cli.ahead import Stopped, ahead
from contrastive_lvm.cli.main import run


def test_work_begins_at_once_and_in_another_thread() -> None:
    begun = threading.Event()

    def work(check: object) -> str:
        begun.set()
        return threading.current_thread().name

    with ahead(work) as result:
        assert begun.wait(60)
        assert result() != threading.current_thread().name
    with ahead(work, at_once=False) as result:
        assert result() == threading.current_thread().name


def test_errors_of_the_work_are_raised_where_its_result_is_wanted() -> None:
    def work(check: object) -> None:
        raise ValueError("no")

    with ahead(work) as result, pytest.raises(ValueError, match="no"):
        result()


def test_work_in_vain_is_stopped_and_waited_for() -> None:
    ended = []

    def work(check: "object") -> None:
        assert callable(check)
        try:
            while True:
                check()
        except Stopped:
            ended.append(True)
            raise

    def left() -> None:
        with ahead(work):
            raise KeyError

    with pytest.raises(KeyError):
        left()
    assert ended == [True]


def test_a_wrong_word_is_told_before_a_damaged_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"a,b\n1\n")
    for options in (["--likelihood", "odd"], ["--scale", "odd"], []):
        assert run(["fit", str(path), *options, "-o", str(tmp_path / "m.clvm")]) == 2
        error = capsys.readouterr().err
        assert ("odd is unknown" in error) == bool(options)
        assert ("rows.csv" in error) == (not options)
