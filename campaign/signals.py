"""Signals at random times.

`clvm fit` and fits in Python receive SIGINT, SIGTERM or SIGHUP at a random moment. The process must
end soon, print one sentence at most, and leave its output whole: as it was before, or new. No other
file may stay behind, neither beside the output nor in the folder for temporary files.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

import contrastive_lvm as clvm
from campaign.case import CLVM, Report, generator, lasting_folder, require

SIGNALS = {"SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}
SCRIPT = """
import signal, sys, warnings
import numpy as np
import contrastive_lvm as clvm
warnings.simplefilter("ignore")
X, B, old = (np.load(f"{sys.argv[1]}/{name}.npy") for name in ("target", "background", "old"))
model = clvm.ContrastiveLVM(1, 1).fit(old, background=old)
before = model.transform(old)
model.set_params(n_target=2, n_shared=8, likelihood=sys.argv[2], n_init=1000)
try:
    print("ready", flush=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.fit(X, background=B)
    assert said, "no warning"
    end = "answered"
except KeyboardInterrupt:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end = "interrupted"
if model.n_features_in_ == old.shape[1]:
    assert (model.transform(old) == before).all()
else:
    assert model.transform(X).shape == (len(X), 2) and np.isfinite(model.lower_bound_)
print(end)
"""


def _listen() -> None:
    """Undo that shells let processes in the background ignore signals, which children inherit."""
    for number in SIGNALS.values():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@cache
def home() -> Path:
    """Write sets whose fit takes seconds."""
    folder = lasting_folder()
    rng = np.random.default_rng(0)
    data = clvm.datasets.make_contrastive(3000, 3000, n_features=60, random_state=0)
    for name, rows in (("target", data.target), ("background", data.background)):
        np.save(folder / f"{name}.npy", np.where(rng.random(rows.shape) < 0.05, np.nan, rows))
    np.save(folder / "old.npy", data.target[:50, :7])
    return folder


def run(number: int) -> Report:
    """Interrupt one process."""
    _listen()
    rng = generator("signals", number)
    name = str(rng.choice(list(SIGNALS)))
    return _command(rng, name) if number % 2 else _python(rng)


def _command(rng: np.random.Generator, name: str) -> Report:
    with tempfile.TemporaryDirectory() as held:
        folder, temporary = Path(held) / "out", Path(held) / "tmp"
        folder.mkdir()
        temporary.mkdir()
        output = folder / "model.clvm"
        output.write_bytes(b"before")
        words = ["fit", home() / "target.npy", home() / "background.npy", "-o", output]
        python, option, code = CLVM
        process = subprocess.Popen(
            [python, option, code.replace("; ", "; print(flush=True); "), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"TMPDIR": str(temporary)},
        )
        assert process.stdout is not None
        process.stdout.readline()  # Python has found where the command starts
        time.sleep(float(rng.uniform(0.0, 4.0)))
        process.send_signal(SIGNALS[name])
        _, err = process.communicate(timeout=60)
        end = process.returncode
        allowed = {0, 2, 128 + SIGNALS[name], -SIGNALS[name]}
        require(end in allowed, f"{name}: exit code {end}: {err[-200:]}")
        require("Traceback" not in err, f"{name}: a traceback: {err[-300:]}")
        left = [path.name for path in (*folder.iterdir(), *temporary.iterdir())]
        require(left == ["model.clvm"], f"{name}: files left behind: {left}")
        whole = output.read_bytes() == b"before" or clvm.load_model(output)
        require(whole, f"{name}: the output is broken")
    return Report(f"clvm fit, {name}", "answered" if end == 0 else "refused")


def _python(rng: np.random.Generator) -> Report:
    likelihood = str(rng.choice(["gaussian", "student_t"]))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(home()), likelihood],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(float(rng.uniform(0.0, 2.0)))
    out, err = "", ""
    for _ in range(2):  # the first may leave a fit with what it has, the second ends it
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            out, err = process.communicate(timeout=40.0)
            break
    else:
        process.kill()
    require(
        process.returncode == 0, f"a fit in Python ends with {process.returncode}: {err[-300:]}"
    )
    return Report(f"fit in Python, {likelihood}", "answered" if "answered" in out else "refused")
