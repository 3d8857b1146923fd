"""Sentences of the library in the words of the command line."""

import ast
import inspect
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE
from contrastive_lvm.estimators.parse_params import ENGINES, LIKELIHOODS, PRIORS

# Parameters of estimators and the options that give them.
OPTIONS = {
    "n_target": "--n-target",
    "n_shared": "--n-shared",
    "n_init": "--n-init",
    "random_state": "--seed",
    "likelihood": "--likelihood",
    "shared_prior": "--shared-prior",
    "target_prior": "--target-prior",
    "inference": "--inference",
    "background_size_factors": "--size-factors",
    "size_factors": "--size-factors",
}
NETWORK = set(inspect.signature(ContrastiveVAE.__init__).parameters) - {*OPTIONS, "self", "verbose"}
OPTIONS |= {name: f"--model vae:{name}" for name in NETWORK}
PLAIN_WORDS = NETWORK | {"likelihood", "inference"}  # options only before an equals sign
OBJECTS = {
    kind.__name__: word for kinds in (LIKELIHOODS, PRIORS, ENGINES) for word, kind in kinds.items()
}

_PARAMETER = re.compile(
    rf"(?<![\w.'\"-])(?P<name>{'|'.join(OPTIONS)})"
    r"(?:(?P<value>=(?:'[^']*'|\"[^\"]*\")?)|(?!['\"\w=]))"
)
_OBJECT = re.compile(rf"\b({'|'.join(OBJECTS)})\(([^()]*)\)")
_ROWS = re.compile(r"(?<!['\"\w])X(?!['\"\w.])")


def in_options(sentence: str, *, rows: str = "the target") -> str:
    """A sentence with options in place of parameters; names in quotes stay as they are.

    Examples
    --------
    >>> in_options("n_shared='auto' uses all; give n_shared as a number and shared_prior='ard'.")
    '--n-shared=auto uses all; give --n-shared as a number and --shared-prior=ard.'
    >>> in_options("EM cannot fit StudentT(df=4.0); use inference=VariationalBayes().")
    'EM cannot fit student_t:df=4.0; use --inference=vb.'
    >>> in_options("the column 'n_shared' is empty.")
    "the column 'n_shared' is empty."
    """
    sentence = _PARAMETER.sub(_option, _OBJECT.sub(_word, sentence))
    return _ROWS.sub(rows, sentence)


def _option(found: "re.Match[str]") -> str:
    name, value = found["name"], found["value"]
    if value is None:
        return name if name in PLAIN_WORDS else OPTIONS[name]
    return OPTIONS[name] + "=" + value[1:].strip("'\"")


def _word(found: "re.Match[str]") -> str:
    """`StudentT(df=4.0)` as `student_t:df=4.0`; what is not so simple stays."""
    try:
        call = ast.parse(found[0], mode="eval").body
    except SyntaxError:
        return found[0]
    if not isinstance(call, ast.Call) or call.args:
        return found[0]
    settings = [f"{own.arg}={_plain(own.value)}" for own in call.keywords]
    return OBJECTS[found[1]] + (f":{','.join(settings)}" if settings else "")


def _plain(value: ast.expr) -> str:
    return str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)


@contextmanager
def plainly(piece: str = "", *, rows: str = "the target") -> Iterator[None]:
    """What the library refuses is bad input, said in options; types come from words here too.

    Settings of a piece such as `--inference svi` keep their names, and it is said whose they are.
    """
    try:
        yield
    except (TypeError, ValueError) as error:
        said = f"{piece}: {error}" if piece else in_options(str(error), rows=rows)
        raise ValueError(said) from error
    except ArithmeticError as error:
        raise ValueError(
            f"numbers are out of range ({error}); use settings nearer to 1, or --scale standard."
        ) from error


@contextmanager
def warnings_told(rows: str = "the target") -> Iterator[None]:
    """What the library warns its users of, in a line each; not what concerns programmers."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for sentence in told_to_users(caught, rows=rows):
        typer.echo(f"warning: {sentence}", err=True)


def told_to_users(
    caught: "list[warnings.WarningMessage]", *, rows: str = "the target"
) -> list[str]:
    """Warnings of the library, each once."""
    ours = [w for w in caught if issubclass(w.category, UserWarning)]
    return list(dict.fromkeys(in_options(str(w.message), rows=rows) for w in ours))
