"""Protein expression of mice: the paper's data with missing values."""

import csv
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from contrastive_lvm.datasets.download import find, reading

FILE = "mice_protein/Data_Cortex_Nuclear.csv"
LAST = ["Genotype", "Treatment", "Behavior", "class"]  # columns after the proteins
N_PROTEINS = 77


class MiceProtein(NamedTuple):
    """Proteins of mice of two genotypes and of control mice, with the mouse of each row."""

    target: npt.NDArray[np.float64]  # (270, 77), NaN where missing
    background: npt.NDArray[np.float64]  # (135, 77), NaN where missing
    target_labels: npt.NDArray[np.intp]  # (270,) 1 = Ts65Dn, 0 = control
    feature_names: list[str]
    description: str
    target_mice: npt.NDArray[np.str_]  # (270,)
    background_mice: npt.NDArray[np.str_]  # (135,)


class MiceTable(NamedTuple):
    """The file: protein levels, and for each row its mouse and how it was treated."""

    proteins: npt.NDArray[np.float64]  # (n, 77)
    names: list[str]
    mice: npt.NDArray[np.str_]  # (n,) without the number of the repetition
    facts: dict[str, npt.NDArray[np.str_]]  # Genotype, Treatment, Behavior, class


def fetch_mice_protein() -> MiceProtein:
    """Fetch protein levels in the cortex of mice, some with a model of Down syndrome.

    Target: mice given saline that were shocked before they could explore their cage (behaviour S/C
    in the file), with (label 1, genotype Ts65Dn) and without (0) the trisomy. Background: control
    mice given saline that explored first (C/S), which lack the trisomy. Each mouse was
    measured fifteen times, so rows of one mouse are not independent: split by `target_mice` when
    you cross-validate. In the file's 1080 rows 1.68 % of the values are missing.

    The file is `mice_protein/Data_Cortex_Nuclear.csv`, 1.7 MB.

    Returns
    -------
    MiceProtein
        `target` (270, 77), `background` (135, 77), `target_labels`, `feature_names`,
        `description`, `target_mice`, `background_mice`.

    References
    ----------
    Higuera, Gardiner and Cios (2015), Self-organizing feature maps identify proteins critical to
    learning in a mouse model of Down syndrome, PLoS ONE 10(6), e0129126.

    Examples
    --------
    >>> from contrastive_lvm.datasets import fetch_mice_protein
    >>> data = fetch_mice_protein()  # doctest: +SKIP
    >>> data.target.shape, data.background.shape  # doctest: +SKIP
    ((270, 77), (135, 77))
    """
    table = read_mice(find(FILE))
    saline = table.facts["Treatment"] == "Saline"
    control = table.facts["Genotype"] == "Control"
    target = saline & (table.facts["Behavior"] == "S/C")
    background = saline & control & (table.facts["Behavior"] == "C/S")
    return MiceProtein(
        target=table.proteins[target],
        background=table.proteins[background],
        target_labels=(~control[target]).astype(np.intp),
        feature_names=table.names,
        description="Proteins of mice with (1) and without (0) Ts65Dn, and of others without.",
        target_mice=table.mice[target],
        background_mice=table.mice[background],
    )


def read_mice(path: Path) -> MiceTable:
    """Read the CSV file: MouseID, 77 proteins, and four columns of text.

    Examples
    --------
    >>> read_mice(Path("Data_Cortex_Nuclear.csv")).proteins.shape  # doctest: +SKIP
    (1080, 77)
    """
    with reading(path, "CSV file"):
        text = path.read_text(encoding="utf-8-sig")
        header, *rows = csv.reader(text.splitlines())
    _check_columns(path, header, rows)
    words = np.array(rows, dtype=np.str_).reshape(len(rows), len(header))
    with reading(path, "table of numbers"):
        values = [[float(text or "nan") for text in row[1 : 1 + N_PROTEINS]] for row in rows]
    return MiceTable(
        proteins=np.array(values, dtype=np.float64).reshape(len(rows), N_PROTEINS),
        names=header[1 : 1 + N_PROTEINS],
        mice=np.array([name.rpartition("_")[0] or name for name in words[:, 0]], dtype=np.str_),
        facts={name: words[:, 1 + N_PROTEINS + i] for i, name in enumerate(LAST)},
    )


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
