"""What a fit found: as facts, as words of advice, and as one page to look at."""
