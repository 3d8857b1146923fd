"""Engines that fit a model to two row sets, and what they return."""
