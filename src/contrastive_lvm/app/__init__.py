"""`clvm app`: a page in the browser of this machine, for people without a terminal.

Whatever is computed is a `clvm` command in a process of its own, so the page has the results of the
command line, and a computation that dies takes nothing with it.
"""
