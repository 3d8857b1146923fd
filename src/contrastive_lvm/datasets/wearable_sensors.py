"""Body-worn sensors: mHealth, the paper's data, and the similar daily and sports activities."""

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.checks import check_integer
from contrastive_lvm.datasets.download import find, load_arrays, present, reading, reason

MHEALTH_COLUMNS = [
    *(f"chest_acc_{axis}" for axis in "xyz"),
    *("chest_ecg_1", "chest_ecg_2"),
    *(f"{u}_{k}_{a}" for u in ("ankle", "arm") for k in ("acc", "gyro", "mag") for a in "xyz"),
]
SPORTS_COLUMNS = [
    f"{unit}_{axis}{kind}"
    for unit in ("T", "RA", "LA", "RL", "LL")
    for kind in ("acc", "gyro", "mag")
    for axis in "xyz"
]


class SensorData(NamedTuple):
    """Signals of two activities and of a background activity, with the type of each sensor."""

    target: npt.NDArray[np.float64]  # (n, d) signals
    background: npt.NDArray[np.float64]  # (m, d) signals
    target_labels: npt.NDArray[np.intp]  # (n,) numbers of the activities
    feature_names: list[str]
    description: str
    sensor_types: list[str]  # (d,) acc, ecg, gyro or mag
    target_subjects: npt.NDArray[np.intp]  # (n,) the person of each row
    background_subjects: npt.NDArray[np.intp]  # (m,) the person of each row


class Design(NamedTuple):
    """Which recordings are used: activities and people, and of each recording which segments."""

    target: tuple[int, ...]
    background: int
    subjects: Sequence[int]
    description: str
    segments: range = range(0)

    def recordings(self) -> list[tuple[int, int]]:
        """List the activity and the person of each recording, the background's last."""
        activities = (*self.target, self.background)
        return [(activity, subject) for activity in activities for subject in self.subjects]


SPORTS = {
    "subject1": Design(
        target=(15, 17),
        background=3,
        subjects=range(1, 2),
        description="Cycling (15) and rowing (17) against lying (3), one person.",
        segments=range(1, 61),
    ),
    "pooled8": Design(
        target=(15, 18),
        background=2,
        subjects=range(1, 9),
        description="Cycling (15) and jumping (18) against standing (2), eight people.",
        segments=range(1, 61, 5),
    ),
}


class _Rows(NamedTuple):
    """Rows of some recordings, with the activity and the person of each."""

    signals: npt.NDArray[np.float64]
    activities: npt.NDArray[np.intp]
    subjects: npt.NDArray[np.intp]


Recordings = dict[tuple[int, int], npt.NDArray[np.float64]]  # rows, by activity and person


def fetch_mhealth(subjects: Iterable[int] = range(1, 11), every: int = 1) -> SensorData:
    """Fetch mHealth: people squatting, cycling and lying down, recorded by 23 body-worn sensors.

    Target: squatting, which the authors call knees bending (label 8), and cycling (9). Background:
    lying down (3). Columns are ordered by type of sensor, as in the paper: nine accelerations, two
    ECG leads, six gyroscopes and, last, six magnetometers, which the paper finds to be of no use.

    The files, in the folder `mhealth`, are `mHealth_subject<N>.log` or the archive of all of them,
    `mhealth+dataset.zip`, 76 MB.

    Parameters
    ----------
    subjects : iterable of int
        Numbers of the people, from 1 to 10.
    every : int
        Keep every n-th row of each recording. There are 50 rows per second, which are strongly
        correlated.

    Returns
    -------
    SensorData
        Rows of 23 signals, the labels are the numbers of the activities.

    References
    ----------
    Banos et al. (2014), mHealthDroid: a novel framework for agile development of mobile health
    applications, IWAAL 2014.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.fetch_mhealth()  # doctest: +SKIP
    >>> data.target.shape[1]  # doctest: +SKIP
    23
    """
    check_integer("every", every, 1)
    people = _subjects(subjects)
    words = f"Squatting (8) and cycling (9) against lying (3) of {len(people)} people, mHealth."
    design = Design(target=(8, 9), background=3, subjects=people, description=words)
    recordings: Recordings = {}
    for subject, path in _logs(people).items():
        signals, labels = read_mhealth(path, subject)
        recordings |= {(a, s): signals[labels == a] for a, s in design.recordings() if s == subject}
    names = [MHEALTH_COLUMNS[i] for i in _by_type(MHEALTH_COLUMNS)]
    return _data(recordings, design, every, names)


def _subjects(subjects: Iterable[int]) -> list[int]:
    if not isinstance(subjects, Iterable):
        raise ValueError(f"subjects={subjects!r} must be a list of numbers from 1 to 10.")  # noqa: TRY004
    chosen = [check_integer("subjects", subject, 1, 10) for subject in subjects]
    if not chosen or len(set(chosen)) < len(chosen):
        raise ValueError(f"subjects={chosen!r} must name at least one, and none of them twice.")
    return chosen


def _logs(subjects: Sequence[int]) -> dict[int, Path]:
    """Find the file of each subject: its log, else the archive, which is looked for once."""
    logs = {subject: present(f"mhealth/mHealth_subject{subject}.log") for subject in subjects}
    archive = find("mhealth/mhealth+dataset.zip") if None in logs.values() else Path()
    return {subject: log or archive for subject, log in logs.items()}


def read_mhealth(
    path: Path, subject: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Read one subject: signals by type of sensor, (n, 23), and the activity of each row, (n,).

    The path is that of the subject's log, which has 24 columns separated by tabs or blanks, or of
    the archive of all logs.
    """
    where = str(path)
    if path.suffix == ".zip":
        member = f"MHEALTHDATASET/mHealth_subject{subject}.log"
        where = f"{member} in {path}"
        (raw,) = _members(path, [member])
    else:
        with reading(path, "log"):
            raw = path.read_bytes()
    table = _numbers(raw, where, len(MHEALTH_COLUMNS) + 1)
    return table[:, _by_type(MHEALTH_COLUMNS)], table[:, -1]


def fetch_daily_sports(which: str = "subject1", every: int = 1) -> SensorData:
    """Fetch daily and sports activities: people in motion, recorded by 45 body-worn sensors.

    Five units, on torso (T), right and left arm (RA, LA) and right and left leg (RL, LL), each with
    an accelerometer, a gyroscope and a magnetometer of three axes, give 25 rows per second. Each
    person did each activity for five minutes, which the authors cut into 60 segments of 125 rows.

    ========== ========================== ============ ========= =================
    `which`    target                     background   people    segments
    ========== ========================== ============ ========= =================
    `subject1` cycling (15), rowing (17)  lying (3)    the first all
    `pooled8`  cycling (15), jumping (18) standing (2) all eight 1, 6, 11, ..., 56
    ========== ========================== ============ ========= =================

    The first is like the paper's experiment with mHealth. In the second, people differ from each
    other in both sets, so a contrastive method is needed. The files, in the folder `daily_sports`,
    are `daily_sports_<which>.npz` (arrays `X`, `activity`, `subject`, `columns`) or the archive of
    the authors' text files, `daily+and+sports+activities.zip`, 170 MB. Both give the same rows.

    Parameters
    ----------
    which : {"subject1", "pooled8"}
    every : int
        Keep every n-th row of each person's recording of an activity.

    Returns
    -------
    SensorData
        Rows of 45 signals, the labels are the numbers of the activities.

    References
    ----------
    Altun, Barshan and Tunçel (2010), Comparative study on classifying human activities with
    miniature inertial and magnetic sensors, Pattern Recognition 43(10).

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.fetch_daily_sports()
    >>> data.target.shape
    (15000, 45)
    """
    if which not in list(SPORTS):
        raise ValueError(f"which={which!r} must be one of {', '.join(map(repr, SPORTS))}.")
    check_integer("every", every, 1)
    design = SPORTS[which]
    archive = "daily_sports/daily+and+sports+activities.zip"
    path = find(f"daily_sports/daily_sports_{which}.npz", archive)
    recordings = _unpacked(path, design) if path.suffix == ".zip" else _stored(path, design)
    return _data(recordings, design, every, SPORTS_COLUMNS)


def _unpacked(path: Path, design: Design) -> Recordings:
    """Read recordings from the text files of the authors' archive."""
    names = {
        (a, s): [f"data/a{a:02d}/p{s}/s{n:02d}.txt" for n in design.segments]
        for a, s in design.recordings()
    }
    raw = iter(_members(path, [name for several in names.values() for name in several]))
    return {
        pair: np.concatenate([_segment(next(raw), f"{name} in {path}") for name in several])
        for pair, several in names.items()
    }


def _segment(raw: bytes, where: str) -> npt.NDArray[np.float64]:
    table = _numbers(raw, where, len(SPORTS_COLUMNS), ",")
    if len(table) != 125:
        raise ValueError(f"{where} has {len(table)} rows instead of 125; download it again.")
    return table


def _stored(path: Path, design: Design) -> Recordings:
    """Read recordings from arrays of the same rows."""
    X, activities, subjects, columns = load_arrays(path, "X", "activity", "subject", "columns")
    rows = (len(X),)
    if columns.tolist() != SPORTS_COLUMNS or X.shape != (*rows, len(SPORTS_COLUMNS)):
        raise ValueError(
            f"{path} lacks the {len(SPORTS_COLUMNS)} columns T_xacc to LL_zmag; download it again."
        )
    if activities.shape != rows or subjects.shape != rows:
        raise ValueError(
            f"{path} has {len(X)} rows in X, but other numbers of activities or subjects; "
            "download it again."
        )
    return {
        (a, s): X[(activities == a) & (subjects == s)].astype(np.float64)
        for a, s in design.recordings()
    }


def _members(path: Path, names: Sequence[str]) -> list[bytes]:
    with reading(path, "zip file"), zipfile.ZipFile(path) as archive:
        return [archive.read(name) for name in names]


def _numbers(
    raw: bytes, where: str, columns: int, delimiter: str | None = None
) -> npt.NDArray[np.float64]:
    """Read a table of numbers from text and check the number of its columns."""
    lines = raw.decode("ascii", errors="replace").splitlines()
    if not raw.strip():
        raise ValueError(f"{where} is empty; download it again.")
    try:
        table = np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{where} is not a table ({reason(error)}); download it again.") from error
    if table.shape[1] != columns:
        raise ValueError(
            f"{where} has {table.shape[1]} columns instead of {columns}; download it again."
        )
    return table


def _type(name: str) -> str:
    return next(kind for kind in ("acc", "ecg", "gyro", "mag") if kind in name)


def _by_type(names: Sequence[str]) -> list[int]:
    """Order columns by their type of sensor, types in alphabetical order."""
    return sorted(range(len(names)), key=lambda i: _type(names[i]))


def _data(recordings: Recordings, design: Design, every: int, names: list[str]) -> SensorData:
    """Stack the recordings of the target activities, and those of the background."""
    thinned = {pair: recordings[pair][::every] for pair in design.recordings()}
    target = _stacked(thinned, design.target)
    background = _stacked(thinned, (design.background,))
    for role, found in (("target", target), ("background", background)):
        if not len(found.signals):
            raise ValueError(
                f"No row of the files belongs to an activity of the {role}; download them again."
            )
    return SensorData(
        target=target.signals,
        background=background.signals,
        target_labels=target.activities,
        feature_names=list(names),
        description=design.description,
        sensor_types=[_type(name) for name in names],
        target_subjects=target.subjects,
        background_subjects=background.subjects,
    )


def _stacked(recordings: Recordings, activities: tuple[int, ...]) -> _Rows:
    """Stack rows of some activities, with their activities and their subjects."""
    own = {pair: rows for pair, rows in recordings.items() if pair[0] in activities}
    pairs = np.repeat(np.array(list(own), np.intp), [len(rows) for rows in own.values()], axis=0)
    return _Rows(np.concatenate(list(own.values())), pairs[:, 0], pairs[:, 1])
