"""`clvm app`: a page in the browser of this machine, for people without a terminal.

Each computation is a `clvm` command in a process of its own, so that the page has the results of
the command line, and a crash affects nothing else.
"""
