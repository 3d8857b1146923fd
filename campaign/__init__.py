"""A campaign of strange inputs: `make campaign` looks for one that makes the package lie."""
