"""Row blocks out of Dask, memory maps and backed files; nothing else."""
