"""Errors that carry the parameter or the data at fault, so that commands can name their option."""


class InvalidParameterError(ValueError, TypeError):
    """A parameter has a value that cannot be used.

    It is both a `ValueError` and a `TypeError`, as in scikit-learn, because a wrong type and a
    wrong value are the same mistake for a user.

    Parameters
    ----------
    parameter : str
        Name of the parameter.
    value : object
        The value it was given.
    reason : str
        The rest of the sentence: what is wrong, and what to do instead.

    Examples
    --------
    >>> print(InvalidParameterError("n_shared", -1, "must be an integer of at least 0."))
    n_shared=-1 must be an integer of at least 0.
    """

    def __init__(self, parameter: str, value: object, reason: str) -> None:
        super().__init__(parameter, value, reason)  # all of them, so that it can be pickled
        self.parameter, self.value, self.reason = parameter, value, reason

    def __str__(self) -> str:
        """Return the sentence, with the parameter as it is written in Python."""
        return f"{self.parameter}={self.value!r} {self.reason}"


class InvalidDataError(ValueError):
    """A set of rows cannot be used.

    Parameters
    ----------
    name : str
        Name of the argument that holds the rows, such as `"X"` or `"background"`.
    reason : str
        The rest of the sentence: what is wrong, and what to do instead.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name, self.reason = name, reason

    def __str__(self) -> str:
        """Return the sentence, with the argument as it is written in Python."""
        return f"{self.name} {self.reason}"
