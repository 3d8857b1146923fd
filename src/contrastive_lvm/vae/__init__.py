"""Autoencoders: networks, the bound and its named parts, training."""
