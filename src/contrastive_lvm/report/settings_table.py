"""What is needed to repeat a fit: data, model and versions."""

import platform
from typing import Any

import numpy as np
import scipy

from contrastive_lvm import __version__

LONGEST = 300  # letters of one setting


def settings(model: Any, facts: dict[str, Any]) -> list[tuple[str, str]]:
    """List names and values as text."""
    pairs = [
        (f"{name} set", _set(facts[name])) for name in ("target", "background") if facts.get(name)
    ]
    pairs += [("features", f"{facts['features']:,}"), ("scale", facts["scale"])]
    pairs += [("estimator", type(model).__name__)]
    pairs += [(name, _short(value)) for name, value in sorted(model.get_params(deep=False).items())]
    versions = f"contrastive-lvm {__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    return [*pairs, ("written with", f"{versions}, Python {platform.python_version()}")]


def _set(facts: dict[str, Any]) -> str:
    missing = f", {facts['missing']:.1%} missing" if facts["missing"] else ""
    source = f" from {facts['file']}" if facts["file"] else ""
    return f"{facts['rows']:,} rows{source}{missing}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
