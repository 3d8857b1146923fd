"""Where rows live, and what they add up to."""
