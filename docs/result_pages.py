"""Pages of results: what each field is, from the comments in the source, and an example.

A function or method returns each result; the example of the result is that of the function.
"""

import inspect
import re
import types
from collections.abc import Iterator

import contrastive_lvm
from contrastive_lvm import datasets, designs, plots

PAGES = (contrastive_lvm, datasets, designs, plots)


def describe_results(*event: object) -> None:
    """Complete the docstring of a result or of its field, as Sphinx is about to show it."""
    _, kind, name, described, _, lines = event
    assert isinstance(lines, list)
    if kind == "class" and isinstance(described, type) and not any(">>>" in own for own in lines):
        example = _examples().get(described.__name__)
        lines += ["", "Examples", "--------", *example.splitlines()] if example else []
    elif lines and lines[0].startswith("Alias for field number"):
        *_, holder, field = str(name).split(".")
        lines[:] = [_fields(holder).get(field, "")]


def _fields(name: str) -> dict[str, str]:
    """Return the comments of the fields of a public named tuple."""
    kind = next(getattr(page, name) for page in PAGES if hasattr(page, name))
    found = re.findall(
        r"^    (\w+): .*?  # (?:noqa: RUF012 - )?(.+)$", inspect.getsource(kind), re.MULTILINE
    )
    return {field: f"{comment[0].upper()}{comment[1:]}." for field, comment in found}


def _examples() -> dict[str, str]:
    """Return examples by the name of what is returned."""
    found: dict[str, str] = {}
    for function in _functions():
        example = (inspect.getdoc(function) or "").partition("Examples\n--------\n")[2]
        returned = str(inspect.signature(function).return_annotation)
        for name in re.findall(r"\w+", returned) if example else ():
            found.setdefault(name, example)
    return found


def _functions() -> Iterator[types.FunctionType]:
    for page in PAGES:
        for name in page.__all__:
            member = getattr(page, name)
            if isinstance(member, types.FunctionType):
                yield member
            elif isinstance(member, type):
                yield from (own for _, own in inspect.getmembers(member, inspect.isfunction))
