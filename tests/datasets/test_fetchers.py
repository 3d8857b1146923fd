"""Parsers of the published formats, on small files written as the real ones are."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from contrastive_lvm import datasets
from contrastive_lvm.datasets.mice_protein import read_mice
from contrastive_lvm.datasets.wearable_sensors import SPORTS_COLUMNS
from tests.datasets.published_files import isolate, put, zipped

GROUPS = [
    ("Control", "Saline", "S/C"),
    ("Ts65Dn", "Saline", "S/C"),
    ("Control", "Saline", "C/S"),
    ("Ts65Dn", "Saline", "C/S"),
    ("Control", "Memantine", "S/C"),
]
LABELS = [0, 3, 3, 3, 8, 8, 9, 9, 9, 12]  # activities in a log


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return isolate(tmp_path, monkeypatch)


def mice_csv() -> list[str]:
    proteins = [f"P{i}_N" for i in range(77)]
    rows = [",".join(["MouseID", *proteins, "Genotype", "Treatment", "Behavior", "class"])]
    for group, facts in enumerate(GROUPS):
        for repetition in (1, 2):
            values = [f"{group + i / 100}" for i in range(77)]
            values[3] = "" if repetition == 2 else values[3]
            rows.append(",".join([f"J{group}_{repetition}", *values, *facts, "c-SC-s"]))
    return rows


def test_mice_are_split_by_what_was_done_to_them(home: Path) -> None:
    text = "\ufeff" + "\r\n".join(mice_csv()) + "\r\n"
    put(home, "mice_protein/Data_Cortex_Nuclear.csv", text.encode())
    data = datasets.fetch_mice_protein()
    assert data.target.shape == (4, 77)
    np.testing.assert_array_equal(data.target[:, 0], [0, 0, 1, 1])
    np.testing.assert_array_equal(data.target_labels, [0, 0, 1, 1])
    np.testing.assert_array_equal(np.isnan(data.target).nonzero(), [[1, 3], [3, 3]])
    np.testing.assert_array_equal(data.background[:, 0], [2, 2])
    assert data.target_mice.tolist() == ["J0", "J0", "J1", "J1"]
    assert data.background_mice.tolist() == ["J2", "J2"]
    assert data.feature_names[0] == "P0_N"
    assert data.feature_names[-1] == "P76_N"


def spoiled(change: Callable[[list[str]], None]) -> bytes:
    rows = mice_csv()
    change(rows)
    return "\n".join(rows).encode()


@pytest.mark.parametrize(
    ("raw", "pattern"),
    [
        (b"", r"is not a complete CSV file \(not enough values"),
        (b"\xff\xfe\x00", r"is not a complete CSV file \('utf-8' codec"),
        (b"MouseID,a,b\nx,1,2\n", "lacks the columns MouseID, 77 proteins, Genotype"),
        (spoiled(lambda rows: rows.insert(3, "J9_1,1,2")), "has 3 columns in line 4 instead of 82"),
        (
            spoiled(lambda rows: rows.append(rows[-1].replace("4.5", "high"))),
            r"is not a complete table of numbers \(could not convert string to float: 'high'\)",
        ),
    ],
)
def test_damaged_mice_are_a_sentence(home: Path, raw: bytes, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern) as caught:
        read_mice(put(home, "mice.csv", raw))
    assert "mice.csv" in str(caught.value)
    assert str(caught.value).endswith("download it again.")


def log(subject: int, separator: str = "\t") -> bytes:
    """Every value tells its column and subject; the first column its row too."""
    rows = []
    for i, label in enumerate(LABELS):
        values = [column + subject / 100 for column in range(23)]
        rows.append(separator.join(f"{v:.5g}" for v in [values[0] - i, *values[1:], label]))
    return ("\n".join(rows) + "\n").encode()


def test_mhealth_columns_go_by_type_and_rows_by_activity(home: Path) -> None:
    put(home, "mhealth/mHealth_subject2.log", log(2))
    put(home, "mhealth/mHealth_subject1.log", log(1, " "))
    data = datasets.fetch_mhealth([2, 1], every=2)
    expected = [0, 1, 2, 5, 6, 7, 14, 15, 16, 3, 4, 8, 9, 10, 17, 18, 19, 11, 12, 13, 20, 21, 22]
    np.testing.assert_allclose(data.target[0, 1:], np.array(expected[1:]) + 0.02)
    assert data.sensor_types == ["acc"] * 9 + ["ecg"] * 2 + ["gyro"] * 6 + ["mag"] * 6
    names = data.feature_names
    assert [names[i] for i in (0, 9, 11, 17, 22)] == [
        "chest_acc_x",
        "chest_ecg_1",
        "ankle_gyro_x",
        "ankle_mag_x",
        "arm_mag_z",
    ]
    assert data.target_labels.tolist() == [8, 8, 9, 9, 9, 9]
    assert data.target_subjects.tolist() == [2, 1, 2, 2, 1, 1]
    np.testing.assert_allclose(data.target[:, 0], [-3.98, -3.99, -5.98, -7.98, -5.99, -7.99])
    np.testing.assert_allclose(data.background[:, 0], [-0.98, -2.98, -0.99, -2.99])
    assert data.background_subjects.tolist() == [2, 2, 1, 1]


def test_mhealth_archive_stands_in_for_logs(home: Path) -> None:
    put(home, "mhealth/mHealth_subject3.log", log(3))
    members = {f"MHEALTHDATASET/mHealth_subject{n}.log": log(n) for n in range(1, 11)}
    put(home, "mhealth/mhealth+dataset.zip", zipped(members))
    data = datasets.fetch_mhealth()
    assert data.target.shape == (50, 23)
    assert np.unique(data.target_subjects).tolist() == list(range(1, 11))
    np.testing.assert_allclose(data.target[:, -1], 22 + data.target_subjects / 100)


@pytest.mark.parametrize(
    ("raw", "pattern"),
    [
        (b" \n", "subject1.log is empty"),
        (log(1) + b"1\t2\t3\n", "the number of columns changed from 24 to 3 at row 11"),
        (log(1).replace(b"22.01", b"high", 1), "could not convert string 'high' to float64"),
        (log(1) + b"\xff\xfe" * 9, "subject1.log is not a table"),
        (b"1 2 3\n4 5 6\n", "subject1.log has 3 columns instead of 24"),
        (log(1).splitlines()[0] + b"\n", "No row of the files belongs to an activity of the targ"),
    ],
)
def test_damaged_logs_are_a_sentence(home: Path, raw: bytes, pattern: str) -> None:
    put(home, "mhealth/mHealth_subject1.log", raw)
    with pytest.raises(ValueError, match=pattern):
        datasets.fetch_mhealth([1])


@pytest.mark.parametrize(
    ("words", "pattern"),
    [
        ({"subjects": [0]}, "subjects=0 must be an integer from 1 to 10"),
        ({"subjects": []}, r"subjects=\[\] must name at least one"),
        ({"subjects": [2, 2]}, r"subjects=\[2, 2\] must name .* none of them twice"),
        ({"subjects": 3}, "subjects=3 must be a list of numbers"),
        ({"every": True}, "every=True must be an integer of at least 1"),
        ({"every": 0}, "every=0 must be an integer of at least 1"),
        ({"every": 2.5}, r"every=2\.5 must be an integer"),
    ],
)
def test_mhealth_arguments_are_checked(words: Any, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        datasets.fetch_mhealth(**words)


def segment(activity: int, subject: int, number: int) -> bytes:
    """First column: activity, subject and segment; second: the row; others: their column."""
    head = f"{activity}{subject}{number:02d}"
    tail = ",".join(str(column) for column in range(2, 45))
    return "".join(f"{head},{row},{tail}\n" for row in range(125)).encode()


@pytest.fixture(scope="module")
def sports_zip() -> bytes:
    chosen = [(a, 1, n) for a in (3, 15, 17) for n in range(1, 61)]
    chosen += [(a, s, n) for a in (2, 15, 18) for s in range(1, 9) for n in range(1, 61, 5)]
    return zipped({f"data/a{a:02d}/p{s}/s{n:02d}.txt": segment(a, s, n) for a, s, n in set(chosen)})


def test_sports_from_the_archive(home: Path, sports_zip: bytes) -> None:
    put(home, "daily_sports/daily+and+sports+activities.zip", sports_zip)
    one = datasets.fetch_daily_sports(every=10)
    assert one.target.shape == (1500, 45)
    assert one.background.shape == (750, 45)
    assert np.unique(one.target_labels, return_counts=True)[1].tolist() == [750, 750]
    assert one.target[0, :3].tolist() == [15101, 0, 2]
    assert one.target[13, :2].tolist() == [15102, 5]  # rows run on over segments: 130 = 125 + 5
    assert one.sensor_types[:9] == ["acc"] * 3 + ["gyro"] * 3 + ["mag"] * 3
    assert one.feature_names[9] == "RA_xacc"
    eight = datasets.fetch_daily_sports("pooled8")
    assert eight.target.shape == (24000, 45)
    assert eight.background.shape == (12000, 45)
    assert np.unique(eight.target_labels).tolist() == [15, 18]
    assert np.unique(eight.background[:, 0] // 1000).tolist() == [2]
    assert np.unique(eight.target[:, 0] % 100).tolist() == list(range(1, 61, 5))
    np.testing.assert_array_equal(eight.target[:, 0] // 100 % 10, eight.target_subjects)


def sports_arrays(**changes: Any) -> bytes:
    activity = np.repeat([2, 3, 15, 17, 18], 4)
    values: dict[str, Any] = {
        "X": np.arange(20.0 * 45, dtype=np.float32).reshape(20, 45),
        "activity": activity.astype(np.int8),
        "subject": np.tile([1, 1, 2, 2], 5).astype(np.int8),
        "columns": np.array(SPORTS_COLUMNS),
    }
    out = io.BytesIO()
    np.savez(out, **{k: v for k, v in (values | changes).items() if v is not None})
    return out.getvalue()


def test_sports_from_arrays(home: Path) -> None:
    put(home, "daily_sports/daily_sports_pooled8.npz", sports_arrays())
    data = datasets.fetch_daily_sports("pooled8", every=2)
    np.testing.assert_array_equal(data.target[:, 0], 45 * np.array([8, 10, 16, 18]))
    np.testing.assert_array_equal(data.background[:, 0], [0, 90])
    assert data.target_labels.tolist() == [15, 15, 18, 18]
    assert data.target_subjects.tolist() == [1, 2, 1, 2]
    assert data.target.dtype == np.float64


@pytest.mark.parametrize(
    ("name", "raw", "pattern"),
    [
        (
            "daily_sports_subject1.npz",
            sports_arrays()[:900],
            "not a complete npz file with",
        ),
        ("daily_sports_subject1.npz", b"words", "not a complete npz file"),
        ("daily_sports_subject1.npz", sports_arrays(subject=None), "subject is not a file in the"),
        ("daily_sports_subject1.npz", sports_arrays(X=np.ones((20, 3))), "lacks the 45 columns"),
        ("daily_sports_subject1.npz", sports_arrays(activity=np.ones(7)), "20 rows in X, but oth"),
        (
            "daily+and+sports+activities.zip",
            b"PK\x03\x04",
            r"not a complete zip file \(File is",
        ),
        ("daily+and+sports+activities.zip", zipped({"a": b""}), "no item named 'data/a15/p1/s01"),
    ],
)
def test_damaged_sports_are_a_sentence(home: Path, name: str, raw: bytes, pattern: str) -> None:
    put(home, f"daily_sports/{name}", raw)
    with pytest.raises(ValueError, match=pattern):
        datasets.fetch_daily_sports()


def test_short_segments_are_refused(home: Path) -> None:
    names = [f"data/a{a}/p1/s{n:02d}.txt" for a in ("15", "17", "03") for n in range(1, 61)]
    raw = segment(15, 1, 1)
    members = dict.fromkeys(names, raw) | {names[4]: b"".join(raw.splitlines(keepends=True)[:99])}
    put(home, "daily_sports/daily+and+sports+activities.zip", zipped(members))
    with pytest.raises(ValueError, match=r"a15/p1/s05\.txt in .* has 99 rows instead of 125"):
        datasets.fetch_daily_sports()
    with pytest.raises(ValueError, match="which='subject2' must be one of 'subject1', 'pooled8'"):
        datasets.fetch_daily_sports("subject2")
