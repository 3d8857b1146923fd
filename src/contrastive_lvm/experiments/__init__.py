"""The paper's experiments, as functions that return their numbers and figures."""

from contrastive_lvm.experiments.outcome import Claim, Outcome, SeedSpread
from contrastive_lvm.experiments.paper import NAMES, reproduce
from contrastive_lvm.experiments.subgroups_demo import (
    DemoResult,
    MethodResult,
    draw_demo,
    report_demo,
    run_demo,
)

__all__ = [
    "NAMES",
    "Claim",
    "DemoResult",
    "MethodResult",
    "Outcome",
    "SeedSpread",
    "draw_demo",
    "report_demo",
    "reproduce",
    "run_demo",
]
