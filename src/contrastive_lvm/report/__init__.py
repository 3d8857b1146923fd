"""The results of a fit as facts, as advice, and as one HTML page."""
