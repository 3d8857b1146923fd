"""Inference from the NumPyro density alone."""
