"""The command `clvm`: read, call the library, write.

Results go to stdout, messages to stderr. Bad input is exit code 2 and one sentence. What takes time
to import is imported by the command that needs it, so that `clvm --help` answers at once.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from contrastive_lvm import __version__

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from contrastive_lvm.experiments.demo import DemoResult

BAD_INPUT, INTERRUPTED = 2, 130
LARGEST_SEED = 2**32 - 1  # what scikit-learn takes

# Newer versions of typer carry a copy of click, so the class has no name to import from everywhere.
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)

app = typer.Typer(
    name="clvm", add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, by default with the arguments of the process; the exit code."""
    try:
        code = app(arguments, prog_name="clvm", standalone_mode=False)
    except typer.Abort:
        return INTERRUPTED
    except UsageError as error:
        return _refuse(_usage_sentence(error.format_message()))
    except (ValueError, OSError) as error:
        return _refuse(str(error))
    return code if isinstance(code, int) else 0


def _refuse(sentence: str) -> int:
    typer.echo(f"clvm: {' '.join(sentence.split())}", err=True)
    return BAD_INPUT


def _usage_sentence(message: str) -> str:
    """One sentence with a way out from typer's message, which may hold a suggestion."""
    message = message.rstrip(".").replace(". Did you mean", "; did you mean")
    return message if message.endswith("?") else f"{message}; see clvm --help."


def _seed(value: str | int) -> int:
    text = str(value)  # the default comes as the number it is
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= LARGEST_SEED:
        raise typer.BadParameter(f"{text!r} is not a whole number from 0 to {LARGEST_SEED}")
    return number


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Find what a target dataset has and a background dataset has not."""
    if version:
        typer.echo(f"clvm {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def demo(
    *,
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the picture; made if absent.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(metavar="N", parser=_seed, help="Seed of the data.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Compare PCA, cPCA and cLVM on synthetic data with four hidden subgroups."""
    picture = _folder(output) / "comparison.png"
    typer.echo("Fitting PCA, cPCA and cLVM to synthetic data ...", err=True)
    from contrastive_lvm.experiments.demo import draw_demo, run_demo

    result = run_demo(random_state=seed)
    _save(draw_demo(result), picture)
    if as_json:
        typer.echo(json.dumps(_facts(result, seed, picture), indent=2, allow_nan=False))
    else:
        typer.echo(_text(result, picture))


def _folder(path: Path) -> Path:
    """The folder, made if absent; refused before any work if nothing can be written there."""
    try:
        if path.exists() and not path.is_dir():
            raise ValueError(f"--output={path} is a file, not a folder; name another folder.")
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise OSError(
            f"--output={path} cannot be written to ({error.strerror}); name another folder."
        ) from error


def _save(figure: "Figure", path: Path) -> None:
    """Write under a temporary name and move, so that no half picture is ever seen."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        figure.savefig(temporary, format="png", dpi=150)
        temporary.replace(path)
    except OSError as error:
        raise OSError(
            f"{path} cannot be written ({error.strerror}); name another folder with --output."
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


def _facts(result: "DemoResult", seed: int, picture: Path) -> dict[str, Any]:
    methods = [
        {
            "method": method.name,
            "silhouette": method.silhouette,
            "ari": method.ari,
            "seconds": method.seconds,
        }
        for method in result.methods
    ]
    shapes = {"target": result.data.target.shape, "background": result.data.background.shape}
    return {"seed": seed, "shapes": shapes, "methods": methods, "picture": str(picture)}


def _text(result: "DemoResult", picture: Path) -> str:
    (rows, features), others = result.data.target.shape, len(result.data.background)
    table = [("method", "silhouette", "ARI", "seconds")]
    table += [
        (m.name, f"{m.silhouette:.3f}", f"{m.ari:.3f}", f"{m.seconds:.3f}") for m in result.methods
    ]
    lines = [
        f"{rows} target and {others} background rows, {features} features, four hidden subgroups",
        "",
        *_aligned(table),
        "",
        f"picture: {picture}",
    ]
    return "\n".join(lines)


def _aligned(table: Sequence[tuple[str, ...]]) -> list[str]:
    """Lines of a table: the first column to the left, numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        )
        for row in table
    ]
