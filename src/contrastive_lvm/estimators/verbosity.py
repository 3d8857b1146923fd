"""`verbose=True`: the package's log on stderr while a fit runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def verbosity(*, enabled: bool) -> Iterator[None]:
    """Show informational messages of the package; leave the logger as it was."""
    if not enabled:
        yield
        return
    logger = logging.getLogger("contrastive_lvm")
    handler, level = logging.StreamHandler(), logger.level
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
