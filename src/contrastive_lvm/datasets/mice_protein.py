"""Protein expression of mice: the paper's data with missing values."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.datasets.download import find, reading

if TYPE_CHECKING:
    import pandas as pd

LAST = ["Genotype", "Treatment", "Behavior", "class"]  # columns after the proteins
N_PROTEINS = 77


class MiceProtein(NamedTuple):
    """Proteins of mice of two genotypes and of control mice, with the mouse of each row."""

    target: npt.NDArray[np.float64]  # (270, 77) levels, NaN where missing
    background: npt.NDArray[np.float64]  # (135, 77) levels, NaN where missing
    target_labels: npt.NDArray[np.intp]  # (270,) 1 = Ts65Dn, 0 = control
    feature_names: list[str]
    description: str
    target_mice: npt.NDArray[np.str_]  # (270,) the mouse of each row
    background_mice: npt.NDArray[np.str_]  # (135,) the mouse of each row


def fetch_mice_protein() -> MiceProtein:
    """Fetch protein levels in the cortex of mice, some with a model of Down syndrome.

    Target: mice given saline that were shocked before they could explore their cage (behaviour S/C
    in the file), with (label 1, genotype Ts65Dn) and without (0) the trisomy. Background: control
    mice given saline that explored first (C/S), which lack the trisomy. Each mouse was measured
    fifteen times, so rows of one mouse are not independent: pass `target_mice` as `groups`, and
    split by it when you cross-validate. In the file's 1080 rows 1.68 % of the values are missing.

    The file is `mice_protein/Data_Cortex_Nuclear.csv`, 1.7 MB.

    References
    ----------
    Higuera, Gardiner and Cios (2015), Self-organizing feature maps identify proteins critical to
    learning in a mouse model of Down syndrome, PLoS ONE 10(6), e0129126.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> data = clvm.datasets.fetch_mice_protein()
    >>> data.target.shape
    (270, 77)
    """
    table = read_mice(find("mice_protein/Data_Cortex_Nuclear.csv"))
    proteins = table.columns[1 : 1 + N_PROTEINS]
    saline, control = table["Treatment"] == "Saline", table["Genotype"] == "Control"
    target = table[saline & (table["Behavior"] == "S/C")]
    background = table[saline & control & (table["Behavior"] == "C/S")]
    return MiceProtein(
        target=target[proteins].to_numpy(),
        background=background[proteins].to_numpy(),
        target_labels=np.asarray(target["Genotype"] != "Control", dtype=np.intp),
        feature_names=proteins.tolist(),
        description="Proteins of mice with (1) and without (0) Ts65Dn, and of others without.",
        target_mice=_mice(target),
        background_mice=_mice(background),
    )


def read_mice(path: Path) -> "pd.DataFrame":
    """Read the CSV file: MouseID, 77 proteins, and four columns of text."""
    import pandas as pd

    with reading(path, "CSV file"):
        header, *rows = csv.reader(path.read_text(encoding="utf-8-sig").splitlines())
    _check_columns(path, header, rows)
    table = pd.DataFrame(rows, columns=header)
    with reading(path, "table of numbers"):
        proteins = table[header[1 : 1 + N_PROTEINS]].replace("", "nan").astype(np.float64)
    return table.assign(**proteins)


def _mice(table: "pd.DataFrame") -> npt.NDArray[np.str_]:
    """Return the mouse of each row, without the number of the repetition."""
    return table["MouseID"].str.replace(r"_[^_]*$", "", regex=True).to_numpy(dtype=np.str_)


def _check_columns(path: Path, header: list[str], rows: list[list[str]]) -> None:
    if header[:1] != ["MouseID"] or header[1 + N_PROTEINS :] != LAST:
        raise ValueError(
            f"{path} lacks the columns MouseID, {N_PROTEINS} proteins, {', '.join(LAST)}; "
            "download it again."
        )
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(
                f"{path} has {len(row)} columns in line {number} instead of {len(header)}; "
                "download it again."
            )
