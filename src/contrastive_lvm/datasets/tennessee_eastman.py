"""The Tennessee Eastman process: the benchmark of process monitoring."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.datasets.download import find, load_arrays
from contrastive_lvm.exceptions import InvalidParameterError

FAULTS = (1, 2, 4, 5, 6, 7, 8, 10, 12, 14)
FIRST_FAULTY = 160  # row of a test run with which the fault begins


class ProcessData(NamedTuple):
    """Runs of a process in normal operation and with a fault; rows are three minutes apart."""

    target: npt.NDArray[np.float64]  # (480, 52) rows with the fault
    background: npt.NDArray[np.float64]  # (500, 52) normal rows
    target_labels: npt.NDArray[np.intp]  # (480,) the number of the fault
    feature_names: list[str]
    description: str
    test: npt.NDArray[np.float64]  # (960, 52) a run in which the fault begins at row 160
    test_labels: npt.NDArray[np.intp]  # (960,) 0 while normal, then the number of the fault
    normal_test: npt.NDArray[np.float64]  # (960, 52) another normal run


def fetch_tennessee_eastman(fault: int = 5) -> ProcessData:
    """Fetch simulated runs of a chemical plant, normal and with one of ten faults.

    The 52 signals are 41 measured ones (XMEAS1 to XMEAS41) and 11 manipulated ones (XMV1 to
    XMV11). Rows of a run are correlated in time.

    The file is `tennessee_eastman/te_faults.npz`, 2 MB, with arrays `train00`, `test00`, `train01`
    and so on.

    Parameters
    ----------
    fault : {1, 2, 4, 5, 6, 7, 8, 10, 12, 14}
        Number of the fault in the target and in the test run.

    References
    ----------
    Downs and Vogel (1993), A plant-wide industrial process control problem, Computers and Chemical
    Engineering 17, 245-255. Chiang, Russell and Braatz (2001), Fault Detection and Diagnosis in
    Industrial Systems, made these runs.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.fetch_tennessee_eastman()
    >>> data.target.shape
    (480, 52)
    """
    if isinstance(fault, bool) or fault not in FAULTS:
        known = ", ".join(map(str, FAULTS))
        raise InvalidParameterError("fault", fault, f"is not one of the faults; use {known}.")
    names = ("train00", "test00", f"train{fault:02d}", f"test{fault:02d}")
    path = find("tennessee_eastman/te_faults.npz")
    runs = [run.astype(np.float64) for run in load_arrays(path, *names)]
    if any(run.ndim != 2 or run.shape[1] != 52 for run in runs):
        raise ValueError(f"{path} does not have 52 signals in each run; make it again.")
    normal, normal_test, target, test = runs
    return ProcessData(
        target=target,
        background=normal,
        target_labels=np.full(len(target), fault, dtype=np.intp),
        feature_names=[f"XMEAS{i}" for i in range(1, 42)] + [f"XMV{i}" for i in range(1, 12)],
        description=f"A chemical plant with fault {fault}, and in normal operation.",
        test=test,
        test_labels=np.where(np.arange(len(test)) < FIRST_FAULTY, 0, fault).astype(np.intp),
        normal_test=normal_test,
    )
