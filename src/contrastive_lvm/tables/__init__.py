"""Tables in files: reading them, choosing their rows, scaling their columns, writing results."""
