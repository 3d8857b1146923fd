"""Every experiment of the paper by its name."""

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
        Much smaller, to see that it runs; its numbers mean little.

    Returns
    -------
    Outcome
        Table, claims, figures and notes.

    Raises
    ------
    FileNotFoundError
        If its data are not there; the sentence says what to put where.

    Examples
    --------
    >>> from contrastive_lvm.experiments import reproduce
    >>> reproduce("generative", quick=True).met
    True
    """
    if name not in NAMES:
        raise ValueError(f"name={name!r} is not an experiment; choose one of {', '.join(NAMES)}.")
    outcome: Outcome = import_module(f"contrastive_lvm.experiments.{name}").run(quick=quick)
    return outcome
