"""Stochastic variational inference."""
