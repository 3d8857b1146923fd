"""Files as spreadsheets export them: words for missing entries, units, encodings, workbooks."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from campaign.run import run_case
from contrastive_lvm.cli.main import run
from contrastive_lvm.io.tables import recognize
from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.prepare import Sets, read_sets
from contrastive_lvm.io.tables.read import read_table
from contrastive_lvm.io.tables.summaries import rows_of_sums
from contrastive_lvm.io.tables.table import Layout, Table, layout_of

Capture = pytest.CaptureFixture[str]
VALUES = np.random.default_rng(0).normal(1.0, 3.0, (20, 3)).round(2)
GROUPS = ["case", "control"] * 10
HEAD = "group,a,b,c"
LINES = [f"{g}," + ",".join(f"{x:.2f}" for x in row) for g, row in zip(GROUPS, VALUES, strict=True)]
BY = Choice(by="group", target=["case"])


def write(path: Path, *lines: str, encoding: str = "utf-8", end: str = "\n") -> Path:
    path.write_bytes((end.join(lines) + end).encode(encoding))
    return path


def read(path: Path, **layout: object) -> Sets:
    return read_sets(path, None, BY._replace(layout=Layout(**layout)))  # type: ignore[arg-type]


@pytest.mark.parametrize("word", ["#N/A", "n.d.", "-", "?", "N/A", ".", "nd", "None", "#DIV/0!"])
def test_words_for_missing_entries(word: str, tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", HEAD, f"case,{word},1,2", f"{word},3,4,5", *LINES)
    table = read_table(path)
    assert table.features == ["a", "b", "c"]
    np.testing.assert_array_equal(table.values[:2], [[np.nan, 1, 2], [3, 4, 5]])
    lost = word in ("#N/A", "n.d.", "N/A")  # the others may be labels among words
    assert (table.annotations["group"][1] == word) != lost


def test_other_words_and_numbers_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", HEAD, "case,fehlt,-99,-99.0", *LINES)
    with pytest.raises(ValueError, match=r"'fehlt' in row 1 of column 'a', where .* --na"):
        read_table(path)
    table = read_table(path, layout=Layout(missing=("fehlt", "-99")))
    np.testing.assert_array_equal(table.values, np.vstack([np.full(3, np.nan), VALUES]))


@pytest.mark.parametrize("word", ["<LOD", "< LOQ", "<0.5", "BDL", ">120"])
def test_what_cannot_be_measured_is_not_missing_at_random(
    word: str, tmp_path: Path, capsys: Capture
) -> None:
    path = write(tmp_path / "rows.csv", HEAD, f"case,{word},1,2", *LINES)
    table = read_table(path)
    assert np.isnan(table.values[0, 0])
    assert table.censored == ("a",)
    command = ["test", str(path), "--by", "group", "--target", "case", "--resamples", "19"]
    assert run([*command, "--json"]) == 0
    assert "not missing at random" in json.loads(capsys.readouterr().out)["warnings"][0]


def test_lines_that_are_left_out(tmp_path: Path) -> None:
    units = write(tmp_path / "units.csv", HEAD, ",mg,mg,%", *LINES)
    with pytest.raises(
        ValueError, match=r"'mg' in row 1 of column 'a'.* --skip-rows 2 if it contains"
    ):
        read_table(units)
    np.testing.assert_array_equal(read_table(units, layout=Layout(skip=(2,))).values, VALUES)
    title = write(tmp_path / "title.csv", "Experiment 12", "", HEAD, *LINES)
    with pytest.raises(ValueError, match="skip lines above the header with --skip-rows"):
        read_table(title)
    lines = layout_of(skip_rows="1-2")
    np.testing.assert_array_equal(read_table(title, layout=lines).values, VALUES)
    for text in ("0", "3-1", "x", "1,,2", ""):
        with pytest.raises(ValueError, match="is not a list of line numbers"):
            layout_of(skip_rows=text)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings(encoding: str, end: str, tmp_path: Path) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    head = HEAD.replace("a,", "Gr\u00f6\u00dfe,")
    path = write(tmp_path / "rows.csv", mark + head, *LINES, encoding=encoding, end=end)
    table = read_table(path)
    assert table.features == ["Gr\u00f6\u00dfe", "b", "c"]
    np.testing.assert_array_equal(table.values, VALUES)
    assert bool(table.remarks) == (encoding in ("latin-1", "cp1252"))


def test_an_umlaut_far_below(tmp_path: Path) -> None:
    lines = [line for line in LINES for _ in range(5000)]
    path = write(tmp_path / "rows.csv", HEAD, *lines, "\u00e4,1,2,3", encoding="latin-1")
    table = read_table(path)
    assert table.annotations["group"].iloc[-1] == "\u00e4"
    assert table.n_rows == 100_001


def test_empty_columns_and_lines_are_left_out(tmp_path: Path) -> None:
    lines = [f"{line},,," for line in LINES]
    lines = [*lines[:3], ",,,,,,", *lines[3:], ",,,,,,", ",,,,,,"]
    sets = read(write(tmp_path / "rows.csv", f"{HEAD},spare,,", *lines))
    assert sets.preparation.features == ["a", "b", "c"]
    assert sets.empty == ["spare"]
    assert sets.target.remarks == ("without 3 empty rows",)
    np.testing.assert_array_equal(sets.target.values, VALUES[::2])
    odd = write(tmp_path / "odd.csv", f"{HEAD},", *(f"{line},{i}" for i, line in enumerate(LINES)))
    with pytest.raises(ValueError, match="has no name for column 5; name every column"):
        read(odd)


@pytest.mark.parametrize(
    ("cells", "values", "decimal"),
    [
        (["1,234,567", "12,345", "999"], [1234567, 12345, 999], None),
        (["1,234.5", "12,345", "9.25"], [1234.5, 12345, 9.25], None),
        (["1.234,5", "12.345", "9,25"], [1234.5, 12345, 9.25], None),
        (["1 234,5", "12\u00a0345", "9,25"], [1234.5, 12345, 9.25], None),
        (["1'234.5", "12'345", "9.25"], [1234.5, 12345, 9.25], None),
        (["1,234", "5,678", "999"], [1234, 5678, 999], "."),
        (["1,234", "5,678", "999"], [1.234, 5.678, 999], ","),
        (["1.234", "5.678", "999"], [1234, 5678, 999], ","),
        (["\u22121.5", "2.5", "+3"], [-1.5, 2.5, 3], None),
    ],
)
def test_separated_thousands(
    cells: list[str], values: list[float], decimal: str | None, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.txt", "a\tb", *(f"{cell}\tx" for cell in cells))
    table = read_table(path, layout=Layout(decimal=decimal))
    np.testing.assert_array_equal(table.values[:, 0], values)


def test_thousands_are_told_by_the_other_columns(tmp_path: Path) -> None:
    lines = ['"1,234",0.5', '"5,678",1.5']
    table = read_table(write(tmp_path / "rows.csv", "reads,ratio", *lines))
    np.testing.assert_array_equal(table.values, [[1234, 0.5], [5678, 1.5]])
    assert table.rewritten == (("reads", "thousands separators"),)
    lines = ["1.234;0,5", "5.678;1,5"]
    table = read_table(write(tmp_path / "rows.csv", "reads;ratio", *lines))
    np.testing.assert_array_equal(table.values, [[1234, 0.5], [5678, 1.5]])
    lines = ["1.234;0,5;1.5", "5.678;1,5;2.5"]
    with pytest.raises(ValueError, match=r"'1.234' in column 'reads', which is ambiguous"):
        read_table(write(tmp_path / "rows.csv", "reads;ratio;other", *lines))


def test_features_in_lines(tmp_path: Path) -> None:
    cells = [HEAD.split(","), *(line.split(",") for line in LINES)]
    cells = [["id", *(f"s{i}" for i in range(20))]] + [list(c) for c in zip(*cells, strict=True)]
    path = write(tmp_path / "rows.csv", *(",".join(line) for line in cells))
    with pytest.raises(ValueError, match="add --transpose if lines are features"):
        read(path)
    sets = read(path, transpose=True)
    np.testing.assert_array_equal(sets.target.values, VALUES[::2])
    assert sets.target.row_names == [f"s{i}" for i in range(0, 20, 2)]
    genes = write(tmp_path / "genes.csv", *(",".join(line) for line in [cells[0], *cells[2:]]))
    with pytest.raises(ValueError, match="has no column 'a'; its lines seem to be features"):
        read_table(genes, annotations=["a"])


def test_a_first_line_of_data_is_no_line_of_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="in its first line, where column names are expected"):
        read(write(tmp_path / "rows.csv", *LINES))
    lines = [line.partition(",")[2] for line in LINES]
    with pytest.raises(ValueError, match="in its first line, where column names are expected"):
        read_table(write(tmp_path / "rows.csv", *lines))
    spectra = write(tmp_path / "rows.csv", "1.5,2.5,3.5", *lines)
    assert read_table(spectra).features == ["1.5", "2.5", "3.5"]
    entrez = write(tmp_path / "rows.csv", "7157,672,3845", *lines)
    assert read_table(entrez).features == ["7157", "672", "3845"]


def test_zeros_before_a_number_make_it_a_code(tmp_path: Path) -> None:
    lines = [f"{i:04d},{line}" for i, line in enumerate(LINES, start=1)]
    path = write(tmp_path / "rows.csv", f"probe,{HEAD}", *lines)
    sets = read(path)
    assert sets.preparation.features == ["a", "b", "c"]
    assert sets.target.annotations["probe"][0] == "0001"
    assert sets.target.identifiers == ("probe",)
    assert read(path, row_names="probe").target.row_names == [f"{i:04d}" for i in range(1, 20, 2)]


@pytest.mark.parametrize("name", ["machine", "Machine No.", "batch", "plate number", "date"])
def test_numbers_of_things_are_no_features(name: str, tmp_path: Path) -> None:
    lines = [f"{45000 + i % 3},{line}" for i, line in enumerate(LINES)]
    sets = read(write(tmp_path / "rows.csv", f"{name},{HEAD}", *lines))
    assert sets.preparation.features == ["a", "b", "c"]


def test_columns_are_dropped_and_name_rows(tmp_path: Path, capsys: Capture) -> None:
    lines = [f"m{i},{i % 4},{line}" for i, line in enumerate(LINES)]
    path = write(tmp_path / "rows.csv", f"mouse,legs,{HEAD}", *lines)
    sets = read(path, row_names="mouse", drop=("legs",))
    assert sets.preparation.features == ["a", "b", "c"]
    assert list(sets.target.annotations) == ["group"]
    assert sets.target.row_names is not None
    assert sets.target.row_names[:2] == ["m0", "m2"]
    for option in ("--index", "--drop"):
        command = ["fit", str(path), "--by", "group", "--target", "case", option, "tail"]
        assert run(command) == 2
        assert f"{option}: {path} has no column 'tail'; it has" in capsys.readouterr().err


def test_workbooks(tmp_path: Path, capsys: Capture) -> None:
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    pytest.importorskip("python_calamine", reason="python-calamine is not installed")
    book = openpyxl.Workbook()
    book.active.append(["nothing here"])
    sheet = book.create_sheet("Data 2")
    sheet.append(["Experiment"])
    sheet.append([*HEAD.split(","), "day", "note"])
    for i, line in enumerate(LINES):
        group, *numbers = line.split(",")
        sheet.append([group, *map(float, numbers), 20250301 + i % 9, "x, y" if i else None])
    sheet.append(["case", "n.d.", None, 3, 20250301, None])
    path = tmp_path / "rows.xlsx"
    book.save(path)
    sets = read(path, sheet="Data 2", skip=(1,))
    assert sets.preparation.features == ["a", "b", "c"]
    np.testing.assert_array_equal(sets.target.values[:-1], VALUES[::2])
    np.testing.assert_array_equal(sets.target.values[-1], [np.nan, np.nan, 3])
    with pytest.raises(ValueError, match=r"--sheet: .* has no sheet 'x'; it has 'Sheet', 'Data 2'"):
        read(path, sheet="x")
    by, lay = ["--by", "group", "--target", "case"], ["--sheet", "Data 2", "--skip-rows", "1"]
    model = str(tmp_path / "m.clvm")
    assert run(["fit", str(path), *by, *lay, "-o", model, "--n-target", "1"]) == 0
    assert "read        its sheet 'Data 2' of 2" in capsys.readouterr().err
    assert run(["transform", model, str(path)]) == 0  # laid out as the file of the fit
    assert capsys.readouterr().out.count("\n") == 22


def workbook(path: Path, rows: Sequence[Sequence[object]], *merged: str) -> Path:
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    pytest.importorskip("python_calamine", reason="python-calamine is not installed")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    for cells in merged:
        book.active.merge_cells(cells)
    book.save(path)
    return path


def test_merged_cells_have_their_value_in_each_row(tmp_path: Path) -> None:
    head = [["group", "levels", None, None], [None, "a", "b", "c"]]
    rows = [["case" if i == 0 else "control", *x] for i, x in enumerate(VALUES.tolist())]
    rows = [*head, *rows[:1], *([None, *x] for x in VALUES[1:10].tolist()), *rows[10:]]
    path = workbook(tmp_path / "rows.xlsx", rows, "A1:A2", "B1:D1", "A3:A12")
    sets = read(path, skip=(1,))
    assert sets.preparation.features == ["a", "b", "c"]
    np.testing.assert_array_equal(sets.target.values, VALUES[:10])
    lines = ["a,group", *(f"{i % 7}.5,{ {0: 'case', 9: 'control'}.get(i, '') }" for i in range(20))]
    with pytest.raises(ValueError, match=r"'group' of .* is empty in 18 of 20 rows, below every"):
        read(write(tmp_path / "rows.csv", *lines))


def test_numbers_of_a_workbook_are_exact_beside_text(tmp_path: Path) -> None:
    rows: list[list[object]] = [["a", "b"], ["1,5", 1.234], ["2,5", "12"], ["3,5", 2.345]]
    table = read_table(workbook(tmp_path / "rows.xlsx", rows))
    np.testing.assert_array_equal(table.values, [[1.5, 1.234], [2.5, 12], [3.5, 2.345]])
    rows = [["a", "b"], ["1.234", 0.5], ["2.345", 1.5]]
    with pytest.raises(ValueError, match=r"'1\.234' in column 'a', which is ambiguous"):
        read_table(workbook(tmp_path / "text.xlsx", rows))
    rows = [["a", "b"], [True, 0.5], [2.5, 1.5], [3.5, 1.5]]
    with pytest.raises(ValueError, match="'True' in row 1 of column 'a', where other rows have nu"):
        read_table(workbook(tmp_path / "truth.xlsx", rows))


@pytest.mark.parametrize(
    ("cells", "values", "how"),
    [
        (["$1,200.50", "-$3.25", "$ 4"], [1200.5, -3.25, 4], "thousands separators and currency"),
        (["1,5 \u20ac", "2 \u20ac", "3,25\u20ac"], [1.5, 2, 3.25], "decimal commas and currency"),
        (["'1.5", "'2", "'-0.5"], [1.5, 2, -0.5], ""),
    ],
)
def test_signs_around_numbers(
    cells: list[str], values: list[float], how: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.txt", "a\tb", *(f"{cell}\tx" for cell in cells))
    table = read_table(path)
    np.testing.assert_array_equal(table.values[:, 0], values)
    assert "".join(own for _, own in table.rewritten).startswith(how)


@pytest.mark.parametrize("pattern", ["{} kg", "({})", "{} \u00b1 0.1", "~{}", "1,23,4{}"])
def test_text_that_holds_numbers_is_mentioned(pattern: str, tmp_path: Path) -> None:
    lines = [f'{line},"{pattern.format(f"{i}.5")}"' for i, line in enumerate(LINES)]
    table = read_table(write(tmp_path / "rows.csv", f"{HEAD},w", *lines))
    assert table.features == ["a", "b", "c"]
    assert table.remarks[0].startswith("w as text, because it says more than numbers")


@pytest.mark.parametrize("pattern", ["S{}", "2025-03-{:02d}", "12:{:02d}", "m_{}", "{}_1"])
def test_names_and_dates_are_not_taken_for_numbers(pattern: str, tmp_path: Path) -> None:
    lines = [f"{line},{pattern.format(i)}" for i, line in enumerate(LINES)]
    table = read_table(write(tmp_path / "rows.csv", f"{HEAD},w", *lines))
    assert table.remarks == ()


def test_numbers_that_may_stand_for_no_value_are_mentioned(tmp_path: Path) -> None:
    lines = ["case,-999,999,-999", "case,2,999,-998", *("case,3,4,-997" for _ in range(9))]
    path = write(tmp_path / "rows.csv", HEAD, *lines)
    remarks = read_table(path).remarks
    assert remarks == (
        "-999 in 'a' as a number; if it stands for no value, add --na -999",
        "999 in 'b' as a number; if it stands for no value, add --na 999",
    )
    assert read_table(path, layout=Layout(missing=("-999", "999"))).remarks == ()


def test_signs_in_one_of_two_files_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "one.csv", "a,b", "12%,1.5", "13%,2.5")
    other = write(tmp_path / "other.csv", "a,b", "0.12,1.5", "0.13,2.5")
    with pytest.raises(ValueError, match="'a' has per cent signs in only one of"):
        read_sets(one, other, Choice())
    assert read_sets(one, other, Choice(annotations=["a"])).preparation.features == ["b"]


def test_lines_below_the_data_are_left_out(tmp_path: Path) -> None:
    for name, said, *below in (
        (
            "notes",
            "without a footnote at the end ('* measured twice')",
            ",,,",
            "* measured twice,,,",
        ),
        ("means", "without 2 summaries at the end ('Mean:', 'SD')", "Mean:,1,2,3", "SD,1,1,1"),
        ("both", "without a footnote at the end", "total,1,2,3", "n.d. = not determined,,,"),
        (
            "tests",
            "without 2 summaries at the end ('Mean case', 'n')",
            "Mean case,1,2,3",
            "n,9,9,9",
        ),
        ("sums", "without a row of sums or means of others ('row 21')", ",{:.2f},{:.2f},{:.2f}"),
    ):
        ends = [line.format(*VALUES.sum(axis=0)) for line in below]
        sets = read(write(tmp_path / f"{name}.csv", HEAD, *LINES, *ends))
        np.testing.assert_array_equal(sets.background.values, VALUES[1::2])  # type: ignore[union-attr]
        assert sets.target.remarks[-1].startswith(said)
    doses = [f"{label},{i},2.5,3" for label in ("min", "max") for i in range(5)]
    assert read_table(write(tmp_path / "doses.csv", HEAD, *doses)).n_rows == 10
    assert read_table(write(tmp_path / "last.csv", HEAD, *LINES, "case 21,,,")).n_rows == 21


@pytest.mark.parametrize("word", ["Moyenne", "Zwischensumme", "case 21", ""])
@pytest.mark.parametrize("label", ["case", ""])
@pytest.mark.parametrize("how", [np.mean, np.sum])
def test_sums_and_means_are_told_by_their_numbers(
    word: str, label: str, how: Callable[..., np.ndarray], tmp_path: Path
) -> None:
    """In any language, with or without a label, within the table and below it."""
    cells = [f"s{i},{line}" for i, line in enumerate(LINES)]

    def summary(values: np.ndarray) -> str:
        return ",".join([word, label, *(f"{x:.2f}" for x in how(values, axis=0))])

    below = [*cells, summary(VALUES)]
    within = [*cells[::2], summary(VALUES[::2]), *cells[1::2], summary(VALUES[1::2])]
    for lines in (below, within):
        sets = read(write(tmp_path / "rows.csv", f"name,{HEAD}", *lines))
        np.testing.assert_array_equal(sets.target.values, VALUES[::2])
        np.testing.assert_array_equal(sets.background.values, VALUES[1::2])  # type: ignore[union-attr]
        assert "of sums or means of others" in sets.target.remarks[-1]


@pytest.mark.parametrize("seed", range(5))
def test_samples_are_no_sums(seed: int) -> None:
    """Counts with many zeros, growing curves, equal rows, rank one, constant columns."""
    rng = np.random.default_rng(seed)
    n, d = 200, 6
    smooth = np.cumsum(np.cumsum(rng.normal(size=(n, d)), axis=0), axis=0)
    zeros = np.where(rng.random((n, d)) < 0.7, 0.0, rng.gamma(2.0, 500.0, (n, d)).round(1))
    drawn = rng.normal(size=(n, 1)) @ rng.normal(size=(1, d))
    for rows in (
        rng.poisson(0.5, (n, d)).astype(float),
        zeros,
        smooth.round(1),
        np.maximum.accumulate(zeros, axis=0),
        np.repeat(rng.normal(size=(n // 4, d)), 4, axis=0),
        drawn.round(2),
        rng.normal(20.0, 0.3, (n, d)).round(1),
        rng.integers(0, 2, (n, d)).astype(float),
        np.ones((n, d)),
        np.where(rng.random((n, d)) < 0.9, np.nan, 1.0),
    ):
        notes = pd.DataFrame({"group": np.arange(n) % 3})
        table = Table(rows, [f"x{j}" for j in range(d)], notes, None, True, "here.csv")  # noqa: FBT003
        assert not rows_of_sums(table).any()


def test_a_single_row_without_a_name_is_no_background(tmp_path: Path) -> None:
    cells = [f"s{i},{line}" for i, line in enumerate(LINES)]
    path = write(tmp_path / "rows.csv", f"name,{HEAD}", *cells, ",fold change,1.2,.8,2")
    with pytest.raises(ValueError, match=r"rows of 'fold change', which seem to summarize"):
        read(path)


def test_rows_that_are_named_after_a_summary_are_refused(tmp_path: Path) -> None:
    """Although their numbers are no sums, as where values are missing."""
    cells = [f"s{i},{line}" for i, line in enumerate(LINES)]
    path = write(
        tmp_path / "rows.csv", f"name,{HEAD}", *cells[:9], "case Total,case,1,,3", *cells[9:]
    )
    with pytest.raises(ValueError, match="has rows named 'case Total', which seem to summarize"):
        read(path)
    totals = [f"total RNA {i},{line}" for i, line in enumerate(LINES)]
    assert read(write(tmp_path / "rna.csv", f"name,{HEAD}", *totals)).target.n_rows == 10


def test_rows_of_totals_are_no_background(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", HEAD, *LINES[:9], "Total,1,2,3", *LINES[9:])
    with pytest.raises(
        ValueError, match=r"--by group: .* rows of 'Total', which seem to summarize"
    ):
        read(path)
    named = read_sets(path, None, BY._replace(background=["control"]))
    assert (named.target.n_rows, named.background.n_rows) == (10, 10)  # type: ignore[union-attr]


def test_a_table_beside_the_other_is_refused(tmp_path: Path) -> None:
    beside = [",,mean,1", ",,sd,2", *[",,,"] * 18]
    lines = [line + end for line, end in zip(LINES, beside, strict=True)]
    with pytest.raises(ValueError, match="column 'what', after an empty column, in its first 2"):
        read_table(write(tmp_path / "rows.csv", HEAD + ",,what,value", *lines))


@pytest.mark.parametrize("row", ["71,5,180", "1.25,71,5"])
def test_decimal_commas_between_commas_are_no_row_names(row: str, tmp_path: Path) -> None:
    lines = [row.replace("5", str(i)) for i in range(10)]
    with pytest.raises(ValueError, match="name no rows; if commas are both decimal marks and"):
        read_table(write(tmp_path / "rows.csv", "weight,height", *lines))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_line_that_names_the_separator(mark: str, tmp_path: Path) -> None:
    lines = [line.replace(",", mark) for line in [HEAD, *LINES]]
    sets = read(write(tmp_path / "rows.csv", f"sep={mark}", *lines))
    np.testing.assert_array_equal(sets.target.values, VALUES[::2])


def test_columns_separated_by_bars(tmp_path: Path) -> None:
    lines = [line.replace(",", "|") for line in [HEAD, *LINES]]
    np.testing.assert_array_equal(
        read(write(tmp_path / "a.txt", *lines)).target.values, VALUES[::2]
    )


def test_two_files_with_the_same_genes_in_lines(tmp_path: Path) -> None:
    one = write(tmp_path / "one.csv", "name,s1,s2", *(f"G{i},{i}.5,2" for i in range(5)))
    other = write(tmp_path / "other.csv", "name,t1,t2", *(f"G{i},{i}.5,2" for i in range(5)))
    with pytest.raises(ValueError, match="or add --transpose if lines are features"):
        read_sets(one, other, Choice())


def test_layouts_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", VALUES)
    for layout in (Layout(skip=(1,)), Layout(decimal=","), Layout(transpose=True)):
        with pytest.raises(ValueError, match="does not apply to"):
            read_table(tmp_path / "rows.npy", layout=layout)
    with pytest.raises(ValueError, match="--decimal=; is not a decimal mark"):
        layout_of(decimal=";")


def test_a_wrong_reading_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recognize, "_decimal_mark", lambda *_, **__: ".")
    said = [run_case("spreadsheets", number).trouble for number in range(0, 90, 18)]
    assert any("the values of" in trouble for trouble in said), said


def test_formulas_without_values_are_refused(tmp_path: Path) -> None:
    """Programs that do not compute write formulas so; they would be missing entries."""
    rows: list[list[object]] = [
        ["group", "a", "b"],
        ["case", 1.5, "=B2*2"],
        ["control", 2.5, "=B3*2"],
    ]
    path = workbook(tmp_path / "rows.xlsx", rows)
    with pytest.raises(ValueError, match=r"without values \(in 2 cells, the first is C2\)"):
        read(path)


@pytest.mark.parametrize("minus", ["\u2212", "\u2013", "\u2011"])
def test_signs_of_text_programs_for_a_minus(minus: str, tmp_path: Path) -> None:
    lines = [line.replace("-", minus) for line in LINES]
    sets = read(write(tmp_path / "rows.csv", HEAD, *lines))
    np.testing.assert_array_equal(sets.target.values, VALUES[::2])


def test_names_in_two_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", 'group,"a\n(kg)",b,c', *LINES)
    assert read(path).preparation.features == ["a (kg)", "b", "c"]


def test_a_label_repeated_at_the_top_of_its_block_only(tmp_path: Path) -> None:
    ordered = [*LINES[::2], *LINES[1::2]]
    bare = [line[line.index(",") :] if i % 10 > 1 else line for i, line in enumerate(ordered)]
    with pytest.raises(ValueError, match="is empty in 16 of 20 rows, below every label"):
        read(write(tmp_path / "rows.csv", HEAD, *bare))


def test_columns_that_code_the_groups_or_days_are_mentioned(tmp_path: Path) -> None:
    codes = [f"{line},{1 + i % 2},{45300 + 7 * i % 40}" for i, line in enumerate(reversed(LINES))]
    codes = [codes[i] for i in np.random.default_rng(1).permutation(len(codes))]
    remarks = read(write(tmp_path / "rows.csv", f"{HEAD},set,Entnahme am", *codes)).target.remarks
    assert remarks[0].startswith(
        "'Entnahme am' as a measurement, although its numbers may be dates"
    )
    assert remarks[-1].startswith("'set' as a measurement, although it has one value in each group")


def test_a_second_line_of_names_is_called_so(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", HEAD, *LINES[:5], HEAD, *LINES[5:])
    with pytest.raises(ValueError, match="remove the second line of column names"):
        read(path)
