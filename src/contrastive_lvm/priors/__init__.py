"""Priors on loadings, one file a prior."""
