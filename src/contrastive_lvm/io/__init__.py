"""Model files and tables."""
