"""Sets of features in the GMT format of gene sets: a name, a description, and members in a line."""

from pathlib import Path

from contrastive_lvm.exceptions import InvalidDataError


def read_gmt(path: str | Path) -> dict[str, list[str]]:
    r"""Read sets of features from a GMT file, the format of MSigDB and Enrichr.

    Parameters
    ----------
    path : str or Path
        A text file with a set in each line, its parts separated by tabs: the name of the set, a
        description, and its features.

    Returns
    -------
    dict of str to list of str
        The features of each set.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sets.gmt"
    >>> _ = path.write_text("interferon\thttps://example.org\tISG15\tIFIT1\n")
    >>> read_gmt(path)
    {'interferon': ['ISG15', 'IFIT1']}
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; name a GMT file.")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidDataError(str(path), "is not text in UTF-8; save it as a GMT file.") from error
    found: dict[str, list[str]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        name, *rest = (part.strip() for part in line.split("\t"))
        if not name or len(rest) < 2:
            reason = (
                f"has no set of features in line {number}; a GMT file has a name, a description "
                "and features there, separated by tabs."
            )
            raise InvalidDataError(str(path), reason)
        if name in found:
            raise InvalidDataError(str(path), f"has two sets {name!r}; rename one of them.")
        found[name] = [feature for feature in rest[1:] if feature]
    return found
