"""What a fit found: as facts, as advice, and as one HTML page."""
