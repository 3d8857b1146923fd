"""How tests are named."""


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes do not name a test: archives hold the time, and workers must agree on all names."""
    return argname if isinstance(val, bytes) else None
