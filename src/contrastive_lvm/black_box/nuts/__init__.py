"""The no-U-turn sampler."""
