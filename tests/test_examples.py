"""The examples run and find what they say."""

import importlib.util
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_choose_dimensions() -> None:
    assert load("choose_dimensions").main() == {"model__n_shared": 8}
