"""Tables of rows and features, read from files and written to them."""
