"""Likelihoods, one file a likelihood."""
