"""Training states as files: arrays and numbers, no code."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from contrastive_lvm._jax import Tree, jax
from contrastive_lvm.io.container import ModelFileError, clause, read_container, write_container
from contrastive_lvm.vae.training import HISTORY, TrainingState

FORMAT = "contrastive-lvm training state"
TREES = ("weights", "optimizer", "best")
FACTS: dict[str, tuple[type, ...]] = {
    "best_bound": (float, int),
    "n_rounds": (int,),
    "idle": (int,),
    "cuts": (int,),
    "seed": (int,),
    "fingerprint": (str,),
}


def write_state(path: str | os.PathLike[str], state: TrainingState) -> None:
    """Write a state to a file for `read_state`."""
    tree = jax.tree
    arrays = {
        f"{name}.{i}": np.asarray(leaf)
        for name in TREES
        for i, leaf in enumerate(tree.leaves(getattr(state, name)))
    }
    arrays |= {f"history.{name}": values for name, values in state.history.items()}
    write_container(Path(path), FORMAT, arrays, {"facts": {n: getattr(state, n) for n in FACTS}})


def read_facts(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what a state says about itself: `FACTS`."""
    settings, _ = _read(path)
    return dict(settings["facts"])


def read_state(path: str | os.PathLike[str], first: TrainingState) -> TrainingState:
    """Read a state of the training that begins at `first`."""
    settings, arrays = _read(path)
    facts = settings["facts"]
    if facts["fingerprint"] != first.fingerprint:
        return first._replace(fingerprint=str(facts["fingerprint"]))  # `resume` refuses it
    try:
        trees = {name: _tree(name, arrays, getattr(first, name)) for name in TREES}
        history = {name: arrays[f"history.{name}"] for name in HISTORY}
        return TrainingState(**trees, **facts, history=history)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{path} is damaged: {clause(error)}; begin again.") from error


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"resume={str(path)!r} is not a file; give the checkpoint of an earlier fit, or None."
        )
    settings, arrays = read_container(Path(path), FORMAT, "training state")
    facts = settings.get("facts")
    if (
        not isinstance(facts, dict)
        or set(facts) != set(FACTS)
        or any(type(facts[name]) not in kinds for name, kinds in FACTS.items())
        or min(facts[name] for name in ("n_rounds", "idle", "cuts", "seed")) < 0
    ):
        raise ModelFileError(
            f"{path} is damaged: its facts are not those of a training; begin again."
        )
    return settings, arrays


def _tree(name: str, arrays: dict[str, np.ndarray], like: Tree) -> Tree:
    leaves, structure = jax.tree.flatten(like)
    found = [arrays[f"{name}.{i}"] for i in range(len(leaves))]
    wanted = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
    if [(array.shape, array.dtype) for array in found] != wanted:
        raise ValueError(f"{name} have other shapes or kinds of numbers")
    tree: Tree = jax.tree.unflatten(structure, found)
    return tree
