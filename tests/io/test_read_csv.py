"""CSV files by pyarrow: the same table as by pandas, or pandas' turn."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contrastive_lvm.io.tables import read_csv as text
from contrastive_lvm.io.tables.table import Table
from contrastive_lvm.linalg.matrices import densify

PLAIN = {
    "numbers": "a,b\n1.5,2\n3,-4e-3\n",
    "words": "name,a\nwild type,1\nmutant,2\n",
    "no last line end": "a,b\n1,2\n3,4",
    "windows": "a,b\r\n1,2\r\n3,4\r\n",
    "byte order mark": "\ufeffa,b\n1,2\n",
    "quoted names": '"a","b, c"\n1,2\n',
    "missing entries": "name,a,b\nx,NA,1\n,2,nan\nNULL,,n/a\n",
    "a missing entry at the start": "a,b\n,1\n2,3\n",
    "empty lines": "\n\na,b\n1,2\n\n3,4\n",
    "row names": ",a,b\n1,1,2\nrow,3,4\n",
    "row names of R": "a,b\nr1,1,2\nr2,3,4\n",
    "unnamed row": ",a\nNA,1\nr,2\n",
    "long integers": "a\n9007199254740993\n-9007199254740993\n",
    "semicolons": "a;b\n1;2.5\n",
    "a plus": "a,b\n1,2\n+3,4\n",
}
NOT_PLAIN = {
    "quotes": 'name,a\n"x, y",1\nz,2\n',
    "names of two lines": '"a\nb",c\n1,2\n',
    "blanks": "a,b\n1, 2\n3, NA\n",
    "blank at the start of a line": "a,b\n1,2\n 3,4\n",
    "blank at the start": "a,b\n 1,2\n3,4\n",
    "old line ends": "a,b\r1,2\r3,4\r",
    "truths": "ok,a\nTrue,1\nFalse,2\n",
    "truths and missing entries": "ok,a\nTrue,1\n,2\n",
    "infinity": "a,b\n1,inf\n2,3\n",
    "another word for NaN": "a,b\n1,2\n3,NAN\n",
    "long line": "a,b\n1,2\n3,4,5\n",
    "short line": "a,b\n1,2\n3\n",
    "words among numbers": "a,b\n1,2\nx,4\n",
    "zero byte": "a,b\n1,2\n3,\x00\n",
}


@pytest.fixture(autouse=True, params=[64, text.BLOCK], ids=["short blocks", "whole"])
def blocks(request: pytest.FixtureRequest) -> Iterator[None]:
    with mock.patch.object(text, "BLOCK", request.param):
        yield


def as_told(path: Path, **options: Any) -> Table | str:
    """The table, or what is wrong with the file."""
    try:
        return text.read_csv(path, **options)
    except ValueError as error:
        return str(error)


def by_pandas(path: Path, **options: Any) -> Table | str:
    def leave(*_: object) -> NoReturn:
        raise text.NotPlainError

    with mock.patch.object(text, "_read_with_pyarrow", leave):
        return as_told(path, **options)


def assert_same(ours: Table | str, theirs: Table | str) -> None:
    if isinstance(ours, str) or isinstance(theirs, str):
        assert ours == theirs
        return
    np.testing.assert_allclose(densify(ours.values), densify(theirs.values), rtol=3e-16)
    assert ours.features == theirs.features
    assert ours.row_names == theirs.row_names
    pd.testing.assert_frame_equal(  # pandas 3 gives no columns at all another type
        ours.annotations, theirs.annotations, check_column_type=False
    )


@pytest.mark.parametrize("name", PLAIN)
def test_plain_files_are_read_as_by_pandas(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(PLAIN[name], encoding="utf-8", newline="")
    with mock.patch.object(text, "_read_with_pandas", side_effect=AssertionError("not plain")):
        ours = as_told(path)
    assert_same(ours, by_pandas(path))


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_other_files_are_left_to_pandas(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(NOT_PLAIN[name], encoding="utf-8", newline="")
    with mock.patch.object(text, "_read_with_pandas", wraps=text._read_with_pandas) as read:
        ours = as_told(path)
    # Names in two lines and old line ends may be refused before any row is read.
    assert read.called or isinstance(ours, str)
    assert_same(ours, by_pandas(path))


def test_annotations_keep_their_integers(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("batch,a\n1,1\n2,2\n")
    table = text.read_csv(path, annotations=["batch"])
    assert table.annotations["batch"].tolist() == [1, 2]
    assert table.annotations["batch"].dtype == np.int64
    assert_same(table, by_pandas(path, annotations=["batch"]))


def test_numbers_come_back_to_the_last_bit(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, 40)) * 10.0 ** np.arange(-20, 20)
    path = tmp_path / "rows.csv.gz"
    with gzip.open(path, "wt") as file:
        pd.DataFrame(values).add_prefix("x").to_csv(file, index=False)
    with mock.patch.object(text, "BLOCK", 4096):  # which no line is longer than
        np.testing.assert_array_equal(text.read_csv(path).values, values)


ENTRIES = [
    "1",
    "-2.5",
    "3e5",
    "1e400",
    "",
    "NA",
    "nan",
    "NaN",
    "Inf",
    "x",
    "wild type",
    "True",
    "+1",
]
ENTRIES += [
    " 1",
    "1 ",
    " ",
    '"1"',
    '"x"',
    '"',
    "0x1A",
    "1_000",
    "1,2",
    "é",
    "\t",
    "2020-01-02",
    ".",
]


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(st.lists(st.sampled_from(ENTRIES), min_size=1, max_size=3), max_size=6),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_file_is_read_as_by_pandas(
    rows: list[list[str]], end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    lines = ["a,b,c", *(",".join((row * 3)[:3]) for row in rows)]
    path.write_text(end.join(lines), encoding="utf-8", newline="")
    assert_same(as_told(path), by_pandas(path))
