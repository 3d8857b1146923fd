from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

def parametrize_with_checks(
    estimators: list[Any], *, expected_failed_checks: Callable[[Any], dict[str, str]] | None = ...
) -> Callable[[_F], _F]: ...
