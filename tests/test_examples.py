"""The examples run and find what they say."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def load(name: str, folder: str = "examples") -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore:n_shared=", "ignore:.* features have no noise left")
def test_choose_dimensions() -> None:
    assert load("choose_dimensions").main() == {"model__n_shared": 8}


def test_known_features() -> None:
    known, others = load("known_features").main()
    assert known > 5 * others


def test_control_and_drugs() -> None:
    assert min(load("control_and_drugs").main().values()) > 0.9


@pytest.mark.slow
def test_joint_regression() -> None:
    quality = load("joint_regression").main()
    assert quality["together with the score"] > 0.95 > quality["alone"]


def test_the_support_table_is_up_to_date() -> None:
    page = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    assert page == load("make_support", "docs").page(), "run `python docs/make_support.py`"
