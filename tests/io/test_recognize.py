"""Files as people have them: decimal commas, per cent signs, numbers that name rows, labels."""

from pathlib import Path

import numpy as np
import pytest

from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.prepare import Sets, read_sets
from contrastive_lvm.io.tables.read import read_table, without_identifiers
from contrastive_lvm.io.tables.row_columns import covariate, replicates_in
from contrastive_lvm.io.tables.table import Layout

RNG = np.random.default_rng(0)
VALUES = RNG.normal(1.0, 3.0, (30, 2)).round(3)
BY = Choice(by="group", target=["case"])


def lines(values: np.ndarray, separator: str, *, comma: bool, sign: str = "") -> list[str]:
    """Rows of two groups in text."""
    cells = [[f"{x:.3f}{sign}".replace(".", "," if comma else ".") for x in row] for row in values]
    groups = ["case", "control"] * (len(values) // 2)
    return [separator.join([g, *row]) for g, row in zip(groups, cells, strict=True)]


def write(path: Path, head: str, rows: list[str]) -> Path:
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("separator", "ending"), [(";", "csv"), ("\t", "tsv"), ("\t", "txt")])
def test_decimal_commas(separator: str, ending: str, tmp_path: Path) -> None:
    head = separator.join(["group", "a", "b"])
    path = write(tmp_path / f"rows.{ending}", head, lines(VALUES, separator, comma=True))
    table = read_table(path)
    assert table.features == ["a", "b"]
    assert list(table.annotations) == ["group"]
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.rewritten == (("a", "decimal commas"), ("b", "decimal commas"))


def test_decimal_commas_beside_whole_numbers_and_missing_entries(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", "a;b;c", ["1,5;7;x", "2;8;y", ";9;z", "NA;1e1;w"])
    table = read_table(path)
    np.testing.assert_array_equal(table.values, [[1.5, 7], [2, 8], [np.nan, 9], [np.nan, 10]])
    assert dict(table.rewritten) == {"a": "decimal commas"}


def test_a_comma_that_may_separate_thousands_is_read_like_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", "a;b", ["1,234;0,5", "5,678;1,25"])
    np.testing.assert_array_equal(read_table(path).values, [[1.234, 0.5], [5.678, 1.25]])


def test_decimal_commas_in_quotes(tmp_path: Path) -> None:
    table = read_table(write(tmp_path / "rows.csv", "a,b", ['"1,5",2', '"-0,25",3']))
    np.testing.assert_array_equal(table.values, [[1.5, 2], [-0.25, 3]])


def test_per_cent_signs(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", "group,a,b", lines(VALUES, ",", comma=False, sign="%"))
    table = read_table(path)
    np.testing.assert_array_equal(table.values, VALUES)
    assert table.rewritten == (("a", "per cent signs"), ("b", "per cent signs"))
    both = write(tmp_path / "both.csv", "a;b", ["1,5 %;2", "2,25%;3"])
    np.testing.assert_array_equal(read_table(both).values, [[1.5, 2], [2.25, 3]])


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1,234", "5,678"], "'1,234' in column 'a', which is ambiguous"),
        (["1,5", "2.5"], "ambiguous"),
        (["12%", "0.5"], "numbers with and without '%' in column 'a', which is ambiguous"),
        (["$12", "\u20ac5"], "numbers with '[$]' and '\u20ac' in column 'a', which is ambiguous"),
        (["1,5", "low"], "where other rows have numbers"),
        (["1.234", "5.678"], r"'1\.234' in column 'a', which is ambiguous"),
        (["1.234", "2,5"], "ambiguous"),
        (["1,234", "2.5"], "ambiguous"),
        (["1,234", "5,678", "2.5"], "ambiguous"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused(
    cells: list[str], words: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "rows.csv", "a;b", [f"{cell};1" for cell in cells])
    with pytest.raises(ValueError, match=words):
        read_table(path)


def test_points_in_a_file_with_tabs_may_separate_thousands(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.tsv", "a\tb", ["850\t1", "1.234\t2", "12.345\t3"])
    with pytest.raises(ValueError, match=r"'1\.234' in column 'a', which is ambiguous"):
        read_table(path)
    assert read_table(path, layout=Layout(decimal=",")).values[1, 0] == 1234
    assert read_table(path, layout=Layout(decimal=".")).values[1, 0] == 1.234
    path = write(tmp_path / "rows.tsv", "a\tb", ["850\t.5", "1.234\t2", "12.345\t3"])
    assert read_table(path).values[1, 0] == 1.234
    path = write(tmp_path / "rows.csv", "a,b", ["850,1", "1.234,2"])  # as Python and R write them
    assert read_table(path).values[1, 0] == 1.234


def test_words_with_commas_stay_words(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", "a;b", ["x, y;1", "v1,2;2", "3,4,5;3", "12:30;4"])
    assert read_table(path).features == ["b"]


def sets_of(tmp_path: Path, name: str, column: np.ndarray, **options: object) -> Sets:
    rows = [
        f"{x:.0f},{line}" for x, line in zip(column, lines(VALUES, ",", comma=False), strict=True)
    ]
    path = write(tmp_path / "rows.csv", f"{name},group,a,b", rows)
    return read_sets(path, None, BY, **options)  # type: ignore[arg-type]


DAYS = np.array([20250228.0, 20250301.0, 20250302.0] * 10)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("id", RNG.integers(0, 9, 30)),
        ("PatientID", RNG.integers(0, 9, 30)),
        ("sample", RNG.permutation(900)[:30]),
        ("sample number", RNG.permutation(900)[:30]),
        ("anything", np.arange(101, 131)),
        ("visit", DAYS),
        ("cell.barcode", RNG.integers(0, 9**9, 30)),
    ],
)
def test_numbers_that_name_rows_are_no_features(
    name: str, column: np.ndarray, tmp_path: Path
) -> None:
    sets = sets_of(tmp_path, name, column)
    assert sets.preparation.features == ["a", "b"]
    assert sets.target.identifiers == (name,)
    assert sets.target.annotations[name].tolist() == column[::2].tolist()
    for features in (["all"], [name, "a", "b"]):
        kept = sets_of(tmp_path, name, column, features=features)
        assert kept.preparation.features == [name, "a", "b"]
    assert sets_of(tmp_path, name, column, features=["b"]).preparation.features == ["b"]
    with pytest.raises(ValueError, match=r"--features: .*rows\.csv has no numeric column 'z'"):
        sets_of(tmp_path, name, column, features=["b", "z"])


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("age", RNG.integers(20, 60, 30)),
        ("total", RNG.permutation(9000)[:30]),
        ("number of children", RNG.integers(0, 4, 30)),
        ("visits", RNG.integers(1, 4, 30)),
        ("valid", RNG.integers(0, 2, 30)),
        ("big", np.array([20251301.0, 20250230.0, 20250101.0] * 10)),
    ],
)
def test_measurements_stay_features(name: str, column: np.ndarray, tmp_path: Path) -> None:
    assert sets_of(tmp_path, name, column).preparation.features == [name, "a", "b"]


def test_a_column_that_names_rows_in_one_file_is_none_in_the_other(tmp_path: Path) -> None:
    for name, column in (("one.csv", [5, 3, 9, 1]), ("two.csv", [5, 5, 9, 1])):
        rows = [f"{i},{x}" for i, x in zip(column, VALUES[:, 0], strict=False)]
        write(tmp_path / name, "sample,a", rows)
    sets = read_sets(tmp_path / "one.csv", tmp_path / "two.csv", Choice())
    assert sets.preparation.features == ["a"]


@pytest.mark.parametrize("other", ["case ", "CASE", "Case"])
def test_labels_that_differ_in_capitals_or_blanks(other: str, tmp_path: Path) -> None:
    rows = lines(VALUES, ",", comma=False)
    rows[0] = rows[0].replace("case", other)
    path = write(tmp_path / "rows.csv", "group,a,b", rows)
    with pytest.raises(
        ValueError, match=f"--target: column 'group' of .* has '{other}' besides 'c"
    ):
        read_sets(path, None, BY)
    two = read_sets(path, None, BY._replace(target=["case", other]))
    assert two.target.n_rows == 15
    apart = read_sets(path, None, BY._replace(background=[other]))
    assert (apart.target.n_rows, apart.background.n_rows) == (14, 1)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("t", np.arange(30) * 3),
        ("seconds", np.tile(np.arange(15) * 20, 2)),
        ("visit", RNG.integers(44000, 46000, 30)),
        ("measured when", RNG.integers(1_600_000_000, 1_700_000_000, 30)),
        ("time", np.cumsum(RNG.integers(1, 9, 30))),
        ("Probennummer", RNG.permutation(9000)[:30]),
        ("Entnahmedatum", 250300 + RNG.integers(1, 29, 30)),
        ("jahr", RNG.integers(2019, 2024, 30)),
        ("col7", 1032025 + 10**6 * RNG.integers(9, 27, 30)),
        ("col8", 240300 + RNG.integers(1, 29, 30)),
    ],
)
def test_clocks_and_dates_are_no_features(name: str, column: np.ndarray, tmp_path: Path) -> None:
    assert sets_of(tmp_path, name, column).target.identifiers == (name,)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("reads", RNG.integers(44000, 46000, 30)),
        ("survival time", RNG.integers(1, 900, 30)),
        ("sorted", np.sort(RNG.integers(1, 900, 30))),
        ("DENR", RNG.permutation(9000)[:30]),
        ("ID2", RNG.permutation(9000)[:30]),
    ],
)
def test_numbers_that_only_look_like_times_stay(
    name: str, column: np.ndarray, tmp_path: Path
) -> None:
    assert sets_of(tmp_path, name, column).preparation.features == [name, "a", "b"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("month", [f"{i % 9 + 1}.2025" for i in range(30)]),
        ("when", [f"{i % 9 + 11}.03" for i in range(30)]),
        ("date", [f"{45000 + 7 * i % 13}.25" for i in range(30)]),
        ("sample id", [f"{i // 3}.{i % 3}" for i in range(30)]),
    ],
)
def test_dates_and_names_with_points_are_no_features(
    name: str, values: list[str], tmp_path: Path
) -> None:
    rows = [f"{x},{row}" for x, row in zip(values, lines(VALUES, ",", comma=False), strict=True)]
    sets = read_sets(write(tmp_path / "rows.csv", f"{name},group,a,b", rows), None, BY)
    assert sets.preparation.features == ["a", "b"]


@pytest.mark.parametrize(
    "values", [np.repeat(range(10), 3), np.tile([1, 2, 3], 10), np.tile([0, 4, 12], 10)]
)
def test_counts_of_blocks_and_positions_are_no_features(values: np.ndarray, tmp_path: Path) -> None:
    assert sets_of(tmp_path, "Durchgang", values).preparation.features == ["a", "b"]
    mixed = np.roll(values, 1) + (np.arange(30) == 4)
    assert sets_of(tmp_path, "grade", mixed).preparation.features == ["grade", "a", "b"]


def test_whole_numbers_that_never_repeat_are_mentioned(tmp_path: Path) -> None:
    said = sets_of(tmp_path, "Kartei", RNG.permutation(900)[:30]).target.remarks
    assert said[0].startswith("'Kartei' as a measurement, although its whole numbers never repeat")
    assert sets_of(tmp_path, "age", RNG.integers(20, 60, 30)).target.remarks == ()


def test_a_sample_number_that_is_missing_far_below(tmp_path: Path) -> None:
    numbers = [str(i) for i in RNG.permutation(9000)[:300]]
    numbers[200] = ""
    rows = [f"x,{number},{i % 7}.5" for i, number in enumerate(numbers)]
    path = write(tmp_path / "rows.csv", "group,Sample No.,a", rows)
    (table,) = without_identifiers(read_table(path))
    assert table.identifiers == ("Sample No.",)


def test_composed_and_decomposed_labels_are_alike(tmp_path: Path) -> None:
    rows = [line.replace("case", "f\u00e4lle") for line in lines(VALUES, ",", comma=False)]
    rows[0] = rows[0].replace("\u00e4", "a\u0308")
    path = write(tmp_path / "rows.csv", "group,a,b", rows)
    with pytest.raises(ValueError, match="use one spelling, or name each"):
        read_sets(path, None, BY._replace(target=["f\u00e4lle"]))


def test_letters_of_other_scripts_look_alike(tmp_path: Path) -> None:
    rows = lines(VALUES, ",", comma=False)
    rows[0] = rows[0].replace("case", "\u0441ase")
    path = write(tmp_path / "rows.csv", "group,a,b", rows)
    with pytest.raises(ValueError, match="besides 'case'; use one spelling, or name each"):
        read_sets(path, None, BY)


def test_numbers_that_are_labels_are_alike(tmp_path: Path) -> None:
    rows = [
        line.replace("case", "1").replace("control", ("x", "01")[i == 1])
        for i, line in enumerate(lines(VALUES, ",", comma=False))
    ]
    path = write(tmp_path / "rows.csv", "group,a,b", rows)
    with pytest.raises(ValueError, match="has '01' besides '1'; use one spelling"):
        read_sets(path, None, BY._replace(target=["1"]))


@pytest.mark.parametrize(("second", "is_text"), [("40,5", False), ("Berlin", True)])
def test_covariates_as_spreadsheets_write_them(second: str, is_text: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Decimal commas make a number, not one category for each row."""
    ages = [second if i % 2 else second.replace("0,", "7,") for i in range(30)]
    rows = [f"{age};{row}" for age, row in zip(ages, lines(VALUES, ";", comma=True), strict=True)]
    path = write(tmp_path / "rows.csv", "age;group;a;b", rows)
    sets = read_sets(path, None, BY._replace(covariates=["age"]))
    assert sets.preparation.categories == (("age",) if is_text else ())
    if not is_text:
        numbers = covariate(sets.target, "age", is_text=False)
        assert numbers.tolist() == [47.5] * 15
        return
    path = write(tmp_path / "rows.csv", "age;group;a;b", [rows[0].lower(), *rows[1:]])
    with pytest.raises(ValueError, match=r"--covariate: .* has 'Berlin' besides 'berlin'; use one"):
        read_sets(path, None, BY._replace(covariates=["age"]))


def test_replicates_that_differ_in_capitals(tmp_path: Path) -> None:
    rows = [f"m{i % 4},{line}" for i, line in enumerate(lines(VALUES, ",", comma=False))]
    rows[0] = rows[0].replace("m0", "M0 ")
    table = read_table(write(tmp_path / "rows.csv", "mouse,group,a,b", rows))
    with pytest.raises(ValueError, match="'m0' besides 'M0 '; use one spelling"):
        replicates_in([table], "mouse")
