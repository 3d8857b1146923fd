"""Tests, intervals and choices that refit a model to resampled rows."""

LEVEL = 0.05  # of all tests
