"""Tests, intervals and choices that refit a model to resampled rows."""
