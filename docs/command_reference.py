"""The reference of the command line, generated from the commands themselves."""

from pathlib import Path

import typer
from typer.core import TyperArgument

from contrastive_lvm.cli.main import app

HEAD = """# Command line

This page is generated from the commands; `clvm COMMAND --help` prints the same text. The commands
write results to standard output, as text or, with `--json`, as JSON. They write messages and
progress to standard error. For invalid input they print an error of one sentence and exit with
code 2.
"""


def write_command_reference(path: Path) -> None:
    """Write one section for each command, with its arguments and options."""
    commands = typer.main.get_command(app)
    parts = [HEAD]
    for name, command in commands.commands.items():  # type: ignore[attr-defined]
        parts.append(f"\n## clvm {name}\n\n{_paragraphs(command.help)}\n")
        parts.append("| argument or option | meaning | default |\n|---|---|---|\n")
        parts += [_row(parameter) for parameter in command.params if not parameter.hidden]
    path.write_text("".join(parts))


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (text or "").split("\n\n"))


def _row(parameter: "typer.core.TyperOption | TyperArgument") -> str:
    if isinstance(parameter, TyperArgument):
        names = f"`{(parameter.metavar or parameter.name or '').upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    given = "" if default in (None, False, (), []) or callable(default) else f"`{default}`"
    meaning = " ".join((parameter.help or "").split()).replace("|", "\\|").replace("*", "\\*")
    return f"| {names} | {meaning} | {given} |\n"
