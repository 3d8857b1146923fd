"""The data files of tutorials: pages whose files are absent are shown without their results."""

import re
from pathlib import Path

from contrastive_lvm.datasets.download import find


def pages_without_data(folder: Path) -> list[str]:
    """Return the tutorials that name files which are neither here nor can be downloaded.

    A tutorial names the files that it needs in calls of `find`.
    """
    return [f"tutorials/{page.name}" for page in sorted(folder.glob("*.md")) if not _ready(page)]


def _ready(page: Path) -> bool:
    for name in re.findall(r'find\("([^"]+)"\)', page.read_text()):
        try:
            find(name)
        except OSError:
            return False
    return True
