"""The command `clvm`."""
