"""The command `clvm`: read, call the library, print.

Results go to stdout, messages to stderr. Bad input ends with exit code 2 and one sentence. Each
command imports what it needs when it runs, so that `clvm --help` answers at once.
"""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, cast

import typer

from contrastive_lvm import __version__
from contrastive_lvm.cli.app import app as open_app
from contrastive_lvm.cli.apply import denoise, impute, score, transform
from contrastive_lvm.cli.compare import compare
from contrastive_lvm.cli.contrast import contrast, feature_sets_command
from contrastive_lvm.cli.export import export
from contrastive_lvm.cli.fit import fit
from contrastive_lvm.cli.monitor import monitor
from contrastive_lvm.cli.options import OPTION_OF
from contrastive_lvm.cli.output import say
from contrastive_lvm.cli.plot import plot
from contrastive_lvm.cli.report import report
from contrastive_lvm.cli.reproduce import datasets, demo, reproduce
from contrastive_lvm.cli.select import select
from contrastive_lvm.exceptions import InvalidDataError, InvalidParameterError

# Newer versions of typer bundle click, so the class cannot be imported by one name.
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)

app = typer.Typer(name="clvm", rich_markup_mode=None, pretty_exceptions_enable=False)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        with warnings.catch_warnings(), _ending_in_order():
            for kind in (RuntimeWarning, DeprecationWarning, FutureWarning, ResourceWarning):
                warnings.simplefilter("ignore", kind)
            code = app(arguments, prog_name="clvm", standalone_mode=False)
    except typer.Abort:
        return 130  # as shells report an interrupt
    except EndedError as error:
        say(f"clvm: {error}; unfinished files have been removed.", err=True)
        return 128 + error.number
    except UsageError as error:
        return _refuse(_usage_sentence(error.format_message()))
    except BrokenPipeError:  # the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, OSError, ImportError, ArithmeticError, MemoryError) as error:
        return _refuse(_sentence(error))
    return code if isinstance(code, int) else 0


class EndedError(BaseException):
    """The process was told to end."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into exceptions, so that a command cleans up before it ends.

    A second one ends it at once. A signal that is ignored (`nohup`) stays so. Python ignores
    exceptions in callbacks, such as those that list libraries; the signal is then sent again.
    """

    def end(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise EndedError(number)

    def send_again(lost: "sys.UnraisableHookArgs") -> None:
        error = lost.exc_value
        if isinstance(error, EndedError):
            number = error.number
            signal.signal(number, end)
        elif isinstance(error, KeyboardInterrupt) and _is_usual(signal.SIGINT):
            number = signal.SIGINT
        else:
            before(lost)
            return
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()

    before = sys.unraisablehook
    in_main = threading.current_thread() is threading.main_thread()
    numbers = [getattr(signal, name, None) for name in ("SIGTERM", "SIGHUP")]
    usual = [n for n in numbers if in_main and n and _is_usual(n)]
    for number in usual:
        signal.signal(number, end)
    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = before
        for number in usual:
            signal.signal(number, signal.SIG_DFL)


def _is_usual(number: int) -> bool:
    return signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)


def _refuse(sentence: str) -> int:
    sentence = " ".join(sentence.split()) or "the input is invalid"
    end = "" if sentence.endswith((".", "?")) else "."
    say(f"clvm: {sentence}{end}", err=True)
    return 2


def _sentence(error: Exception) -> str:
    """Return the sentence of an error, with options in place of parameters."""
    if isinstance(error, InvalidParameterError):
        option = OPTION_OF.get(error.parameter, error.parameter)
        typed = isinstance(error.value, str | int | float)  # not an object built from the text
        return f"{option}={error.value} {error.reason}" if typed else f"{option} {error.reason}"
    if isinstance(error, InvalidDataError):
        sets = {"X": "the target", "background": "the background"}
        name = sets.get(error.name) or OPTION_OF.get(error.name, error.name)
        return f"{name} {error.reason}"
    if isinstance(error, ArithmeticError):
        return f"a number is out of range ({error}); try --scale standard."
    if isinstance(error, OSError) and error.strerror:  # not a sentence of ours
        place = error.filename or "the output"
        return f"{place} cannot be read or written ({error.strerror}); choose another location."
    if isinstance(error, MemoryError):
        return "there is not enough memory; use fewer rows or features, or float32."
    return str(error)


def _usage_sentence(message: str) -> str:
    """Turn a message of typer, which may hold a suggestion, into one sentence."""
    message = message.rstrip(".").replace(". Did you mean", "; did you mean")
    return message if message.endswith("?") else f"{message}; see clvm --help."


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Find the structure that a target dataset has and a background dataset lacks."""
    if version:
        typer.echo(f"clvm {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


# Commands whose names are not those of their functions.
names: dict[object, str] = {contrast: "test", feature_sets_command: "feature-sets"}
for command in (
    fit, contrast, select, report, plot, export, feature_sets_command, transform, impute, denoise,
    score, monitor, compare, open_app, demo, reproduce, datasets,
):  # fmt: skip
    app.command(names.get(command))(command)
