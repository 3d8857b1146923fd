"""Experiments as functions that return their numbers and what their pictures show."""

from contrastive_lvm.experiments.demo import DemoResult, MethodResult, draw_demo, run_demo

__all__ = ["DemoResult", "MethodResult", "draw_demo", "run_demo"]
