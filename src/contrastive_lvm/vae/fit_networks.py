"""A whole fit: prepare the data, train round by round, and evaluate the best networks."""

import logging
import os
import warnings
from typing import NamedTuple

import numpy as np

from contrastive_lvm.black_box.devices import Placement
from contrastive_lvm.progress import noting_interrupts, progress
from contrastive_lvm.rows.reader import LocalRows
from contrastive_lvm.rows.scatter import Moments
from contrastive_lvm.vae.architecture import Architecture
from contrastive_lvm.vae.checkpoints import read_facts, read_state, write_state
from contrastive_lvm.vae.trained_networks import TrainedNetworks, centre_decoders
from contrastive_lvm.vae.training import Training, TrainingPlan, TrainingState
from contrastive_lvm.vae.training_data import NetworkRows, prepare_training

logger = logging.getLogger(__name__)
Resume = TrainingState | str | os.PathLike[str] | None


class NetworkFit(NamedTuple):
    """The result of a fit."""

    networks: TrainedNetworks
    state: TrainingState
    lower_bound: float  # of all rows
    lower_bound_error: float  # Monte-Carlo standard error
    n_epochs: int
    converged: bool
    finished: bool  # not interrupted
    held_out: tuple[NetworkRows, ...]  # rows that did not train; () without


def fit_networks(
    architecture: Architecture,
    plan: TrainingPlan,
    sets: tuple[NetworkRows, ...],
    moments: tuple[Moments, ...],
    placement: Placement,
    seed: int,
    resume: Resume = None,
) -> NetworkFit:
    """Train on one or two sets, the target first; a state to resume brings its own seed."""
    if resume is not None:
        seed = resume.seed if isinstance(resume, TrainingState) else int(read_facts(resume)["seed"])
    rng = np.random.default_rng([seed, 1])
    data = prepare_training(architecture, sets, moments, plan.validation_fraction, rng)
    training = Training(architecture, plan, data, placement, seed)
    if isinstance(resume, TrainingState):
        training.resume(resume)
    elif resume is not None:
        training.resume(read_state(resume, training.state))
    converged = _run(training)
    trained = TrainedNetworks(architecture, training.state.best, data.units, data.constants)
    networks = centre_decoders(trained, sets)
    bounds = [
        networks.lower_bound(rows, of, seed)
        for rows, of in zip(sets, ("target", "background"), strict=False)
    ]
    total, variance = np.sum(bounds, axis=0)
    error = float(np.sqrt(variance))
    D = architecture.n_features
    held_out = tuple(
        NetworkRows(LocalRows(data.units.restore(rows[:, :D])), covariates=rows[:, D:])
        for rows in data.held_out
    )
    return NetworkFit(
        networks,
        training.state,
        float(total),
        error,
        training.n_epochs,
        converged,
        not training.is_due,
        held_out,
    )


def continues(resume: TrainingState | str | os.PathLike[str], architecture: Architecture) -> bool:
    """Tell whether a state is one of training an architecture."""
    known = resume._asdict() if isinstance(resume, TrainingState) else read_facts(resume)
    return str(known["fingerprint"]).startswith(f"({architecture!r}, ")


def _run(training: Training) -> bool:
    """Train round by round; return whether training settled before its epochs were used up."""
    try:
        name = "VAE" if len(training.data.sets) == 1 else "ContrastiveVAE"
        shown = progress(name, training.schedule.epochs, logger, unit="epoch")
        with noting_interrupts(), shown as advance:
            while training.is_due:
                before = training.n_epochs
                training.round()
                if training.plan.checkpoint is not None and training.state.n_rounds:
                    write_state(training.plan.checkpoint, training.state)
                advance(training.n_epochs - before, training.message())
    except KeyboardInterrupt:
        if training.state.n_rounds == 0:
            raise
        warnings.warn(
            f"interrupted after epoch {training.n_epochs}; the best state so far is kept, "
            "and fit(..., resume=model.state_) continues from the last.",
            UserWarning,
            stacklevel=6,
        )
        return False
    return training.settled
