"""Read any file of the known formats as a table."""

from collections.abc import Callable, Collection
from pathlib import Path

from contrastive_lvm.io.tables.binary import read_h5ad, read_npy, read_npz, read_parquet, read_tenx
from contrastive_lvm.io.tables.read_csv import read_csv
from contrastive_lvm.io.tables.table import Table, some

TEXTS = (".csv", ".tsv", ".tab", ".txt")
KNOWN = ".csv, .tsv, .csv.gz, .tsv.gz, .parquet, .npy, .npz, .h5ad, or a 10x folder"


def read_table(
    path: Path,
    *,
    annotations: Collection[str] = (),
    features: Collection[str] | None = None,
    layer: str | None = None,
    progress: Callable[[int], None] = lambda n_bytes: None,
) -> Table:
    r"""Read a file or a 10x folder; its name says which format it has.

    Parameters
    ----------
    path : Path
    annotations : collection of str
        Columns that are kept out of the numbers even if they hold numbers.
    features : collection of str, optional
        The only columns that are numbers for the model; others become annotations.
    layer : str, optional
        Which matrix of an h5ad file; other formats have one.
    progress : function
        Called with the number of bytes that have been read, where that is known.

    Returns
    -------
    Table

    Raises
    ------
    ValueError
        If the file is damaged, empty, or not a table; the sentence names it.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.tsv"
    >>> _ = path.write_text("group\tage\ncase\t40\ncontrol\tNA\n")
    >>> read_table(path).values.tolist()
    [[40.0], [nan]]
    """
    try:
        table = _read(path, annotations, features, layer, progress)
    except FileNotFoundError as error:
        if error.errno is None:  # a sentence of our own
            raise
        raise FileNotFoundError(f"{path} is not there; check its name.") from error
    except IsADirectoryError as error:
        raise ValueError(f"{path} is a folder; name a file in it.") from error
    except PermissionError as error:
        raise PermissionError(
            f"{path} cannot be opened (permission denied); allow reading it, or copy it."
        ) from error
    absent = set(annotations).difference(table.annotations.columns, table.features)
    if absent and features is None:
        raise ValueError(
            f"{path} has no column {some(sorted(absent))}; it has "
            f"{some([*table.annotations.columns, *table.features])}."
        )
    return _set_aside(table, annotations)


def _read(
    path: Path,
    annotations: Collection[str],
    features: Collection[str] | None,
    layer: str | None,
    progress: Callable[[int], None],
) -> Table:
    if path.is_dir() or path.name.endswith((".tar", ".tar.gz", ".tgz")):
        return read_tenx(path)
    if is_text(path):
        return read_csv(path, annotations=annotations, features=features, progress=progress)
    ending = path.suffix.lower()
    if ending in (".parquet", ".pq"):
        path.open("rb").close()  # whether it is there is said in our own words
        return read_parquet(path, annotations=annotations, features=features)
    if ending not in (".npy", ".npz", ".h5ad"):
        raise ValueError(f"{path} has an ending that is not known; use {KNOWN}.")
    path.open("rb").close()
    if ending == ".h5ad":
        return read_h5ad(path, layer=layer)
    return read_npy(path) if ending == ".npy" else read_npz(path)


def is_text(path: Path) -> bool:
    """Return whether a file is to be read as text, by its name."""
    ending = "".join(path.suffixes[-2:]).lower()
    return ending.removesuffix(".gz").endswith(TEXTS) and not path.is_dir()


def _set_aside(table: Table, annotations: Collection[str]) -> Table:
    """Make features annotations, in formats that read all columns as features."""
    aside = [i for i, name in enumerate(table.features) if name in set(annotations)]
    if not aside:
        return table
    columns = table.values[:, aside]
    dense = columns.toarray() if hasattr(columns, "toarray") else columns
    notes = table.annotations.assign(
        **{table.features[i]: c for i, c in zip(aside, dense.T, strict=True)}
    )
    keep = [i for i in range(len(table.features)) if i not in set(aside)]
    features = [table.features[i] for i in keep]
    return table._replace(values=table.values[:, keep], features=features, annotations=notes)
