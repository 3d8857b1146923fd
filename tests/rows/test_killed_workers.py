"""A chunk that always kills its worker ends the fit, and the work on the other set.

A cluster whose workers do not come back ends it, too.
"""

import subprocess
import sys
import time
from typing import Any

import dask.array as da
import pytest

from contrastive_lvm.exceptions import InvalidDataError
from contrastive_lvm.rows import dask_rows
from contrastive_lvm.rows.reader import Checks

SCRIPT = """
import os
import dask
import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
import contrastive_lvm as clvm

def die(chunk):
    os._exit(1)

def same(chunk):
    return chunk

if __name__ == "__main__":
    rows = np.random.default_rng(0).normal(size=(60, 4))
    target = da.from_array(rows, chunks=(20, 4)).map_blocks(same, meta=rows[:0])
    background = da.concatenate([target[:20].map_blocks(die, meta=rows[:0]), target[20:]])
    model = clvm.ContrastiveLVM(1, 1)
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50)
        as cluster,
        Client(cluster),
    ):
        try:
            model.fit(target, background=background)
        except Exception as error:
            print(f"refused: {error}")
    assert not hasattr(model, "mean_")
"""


def test_a_chunk_that_kills_its_worker_ends_the_fit() -> None:
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith("refused: ")
    assert "worker" in done.stdout


def test_workers_that_do_not_come_back_end_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr(dask_rows, "LOOK", 0.05)
    monkeypatch.setattr(dask_rows, "NO_WORKERS", 0.1)
    rows: Any = da.ones((60, 4), chunks=(20, 4))
    settings = {"n_workers": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        anything = Checks(lambda _: None, lambda _: None)
        reader = dask_rows.DaskRows(rows, "background", anything)
        assert len(next(iter(reader.read()))) == 20
        cluster.scale(0)
        while client.nthreads():
            time.sleep(0.01)
        with pytest.raises(InvalidDataError, match="background is on a Dask cluster that lost all"):
            list(reader.read())
