"""The experiments of the paper by their names."""

import warnings
from importlib import import_module

from contrastive_lvm.experiments.outcome import Outcome

NAMES = ("synthetic", "generative", "outliers", "mice", "rnaseq", "sensors", "digits")


def reproduce(name: str, *, quick: bool = False) -> Outcome:
    """Run one experiment.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    quick : bool
        Whether to run a much smaller version, whose numbers mean little.

    Returns
    -------
    Outcome
        Table, claims, figures and notes.

    Examples
    --------
    >>> from contrastive_lvm.experiments import reproduce
    >>> reproduce("generative", quick=True).met
    True
    """
    if name not in NAMES:
        raise ValueError(f"name={name!r} is not an experiment; choose one of {', '.join(NAMES)}.")
    with warnings.catch_warnings():  # the paper's models are fitted as they are
        about = "The (noise of|background varies)|n_shared=|.* features have no noise left"
        warnings.filterwarnings("ignore", about)
        outcome: Outcome = import_module(f"contrastive_lvm.experiments.{name}").run(quick=quick)
    return outcome
