"""Pure functions on arrays, in the paper's letters; NumPy and SciPy only."""
