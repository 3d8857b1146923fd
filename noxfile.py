#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.2.9"]
# ///
"""The Makefile for several versions of Python: `nox` runs the tests with each of them."""

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "none"  # make sets up its own environments


@nox.session
@nox.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def tests(session: nox.Session, version: str) -> None:
    """Run `make test` in an environment of its own."""
    _make(session, "test", f"PYTHON=python{version}", f"VENV=build/venv-{version}")


@nox.session(default=False)
def lowest(session: nox.Session) -> None:
    """Run the tests with the lowest versions that pyproject.toml allows."""
    _make(session, "lowest")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site."""
    _make(session, "docs")


def _make(session: nox.Session, *arguments: str) -> None:
    session.run("make", *arguments, external=True)


if __name__ == "__main__":
    nox.main()
