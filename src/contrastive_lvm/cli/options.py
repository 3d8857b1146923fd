"""Options of several commands, each described once.

A group of options is a table of parameters. Commands that have the group take its values together,
as keyword arguments.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import typer

if TYPE_CHECKING:
    from contrastive_lvm.io.tables.choose_rows import Choice

Said = dict[str, Any]  # values of options by their parameters
Group = dict[str, tuple[object, object]]  # annotations and defaults
Texts = list[str] | None
Command = TypeVar("Command", bound=Callable[..., object])

# The options that set parameters of the library.
OPTION_OF = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        "n_target", "n_shared", "n_background", "likelihood", "shared_prior", "target_prior",
        "inference", "n_init", "size_factors", "of", "alpha",
    )
}  # fmt: skip
OPTION_OF |= {
    "blocks": "--block",
    "latent_prior": "--subgroups",
    "n_components": "--subgroups",
    "random_state": "--seed",
    "background_size_factors": "--size-factors",
    "covariates": "--covariate",
    "background_covariates": "--covariate",
    "n_rhos": "--strengths",
    "groups": "--replicates",
    "background_groups": "--replicates",
    "n_resamples": "--resamples",
    "n_bootstrap": "--bootstrap",
}


def option(
    metavar: str | None,
    meaning: str,
    *names: str,
    kind: Any = str | None,
    default: object = None,
    **more: Any,
) -> tuple[object, object]:
    """Describe an option; one without a `metavar` is a flag."""
    if metavar is None:
        kind, default = bool, False
    return Annotated[kind, typer.Option(*names, metavar=metavar, help=meaning, **more)], default


def file(metavar: str, meaning: str) -> tuple[object, object]:
    """Describe the name of a file that a command needs."""
    return Annotated[Path, typer.Argument(metavar=metavar, help=meaning)], inspect.Parameter.empty


def _seed(value: str | int) -> int:
    text = str(value)  # the default is passed as a number
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number < 2**32:  # as scikit-learn accepts
        raise typer.BadParameter(f"{text!r} is not an integer from 0 to {2**32 - 1}")
    return number


Seed = Annotated[int, typer.Option(metavar="N", parser=_seed, help="Random seed.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Bootstrap = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Number of fits to resampled rows for standard errors of the loadings; 0 skips them. "
        "Default: 200 if that takes about a second, otherwise 0.",
    ),
]
Color = Annotated[
    str | None,
    typer.Option(
        "--color", "--colour", metavar="COLUMN", help="Column whose values colour the rows."
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", "-y", help="Read the files named in the model without asking.")
]
RowsOfFit = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="The target set; by default, the rows of the fit."),
]
BackgroundFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="BACKGROUND",
        help="The background set; omit it if FILE contains both sets (see --by and --target).",
    ),
]

LAYOUT: Group = {  # how a file is laid out
    "index": option("COLUMN", "Column with the names of the rows."),
    "drop": option("COLUMN", "Column to ignore. Repeatable.", kind=Texts),
    "na": option(
        "VALUE",
        "Value to read as missing in numeric columns, besides NA, #N/A, n.d., -, ? and others "
        "listed on the page about files. Repeatable.",
        kind=Texts,
    ),
    "decimal": option(
        "MARK", "Decimal mark of a text file, point or comma, if its numbers are ambiguous."
    ),
    "skip_rows": option(
        "LINES",
        "Lines to skip, counted from 1: 2 for a line of units below the header, 1-3 for three "
        "lines above it.",
    ),
    "transpose": option(None, "Read lines as features and columns as rows.", "--transpose"),
    "sheet": option("NAME", "Sheet of a workbook (.xlsx); by default, the first."),
}
WHERE: Group = {
    "where": option(
        "COLUMN=VALUE",
        "Use only rows with this value (or without it: COLUMN!=VALUE). Repeatable: values of the "
        "same column are alternatives; conditions on different columns must all hold.",
        kind=Texts,
    )
}
SIDES: Group = {  # which rows are target and background
    "by": option("COLUMN", "Column of FILE that names the set of each row."),
    "target": option(
        "VALUE",
        "Target rows: a value in the --by column, or COLUMN=VALUE. Repeatable.",
        kind=Texts,
    ),
    "background": option(
        "VALUE",
        "Background rows, chosen in the same way; by default, rows with any other value in the "
        "--by column.",
        kind=Texts,
    ),
    **WHERE,
}
SETS: Group = {  # two sets that something is fitted to
    "file": file(
        "FILE",
        "The target set: .csv, .tsv (.gz), .xlsx, .parquet, .npy, .npz, .h5ad or a 10x folder.",
    ),
    "background_file": (BackgroundFile, None),
    **SIDES,
    "annotation": option(
        "COLUMN", "Numeric column to keep out of the model. Repeatable.", kind=Texts
    ),
    "features": option(
        "COLUMN",
        "Column to use as a feature; by default, all numeric columns except those that look like "
        "identifiers, and with all, these too. Repeatable.",
        kind=Texts,
    ),
    "scale": option(
        "METHOD",
        "Scaling of the features, computed from both sets together: standard, robust or none.",
        kind=str,
        default="none",
    ),
    "layer": option("NAME", "Layer of an .h5ad file to use instead of X, or raw for .raw."),
    "replicates": option(
        "COLUMN",
        "Column with the replicate (donor, animal, run) of each row. Rows of the same replicate "
        "are not independent, so tests and standard errors resample whole replicates.",
    ),
}
MODEL: Group = {  # what every linear model of two sets has
    "n_shared": option(
        "N", "Number of dimensions that both sets share, or auto (the default; 8 for vae)."
    ),
    "likelihood": option(
        "KIND",
        "gaussian, student_t, poisson, negative_binomial, bernoulli or mixed. Settings follow a "
        "colon, as in gaussian:noise=feature, student_t:df=learn,per=sample or "
        "mixed:features=FILE (a table with the columns feature and kind).",
        kind=str,
        default="gaussian",
    ),
    "size_factors": option(
        "WHICH",
        "Size factors for counts: total (row totals, the default), none, or a column of the file. "
        "Commands that apply the model read this column too.",
    ),
    "covariate": option(
        "COLUMN",
        "Column, such as age or batch, whose effect on the mean is estimated so that it is not "
        "mistaken for structure; text is categorical. Commands that apply the model read the "
        "column too. Repeatable.",
        kind=Texts,
    ),
}
N_TARGET: Group = {
    "n_target": option(
        "N",
        "Number of dimensions that only the target has, or auto for as many as the contrast test "
        "supports.",
        kind=str,
        default="2",
    )
}
MODEL_FILE: Group = {"model": file("MODEL", "A model file written by clvm fit.")}
APPLY: Group = {  # a model and the rows that it is applied to
    **MODEL_FILE,
    "file": file("FILE", "The rows, in any format that clvm fit reads."),
    **WHERE,
    "output": (
        Annotated[
            Path | None,
            typer.Option(
                "--output",
                "-o",
                metavar="FILE",
                help="File to write (.csv, .tsv, .gz, .npy or .parquet) instead of printing CSV.",
            ),
        ],
        None,
    ),
    "as_json": (Json, False),
}
OF: Group = {
    "of": option(
        "SET",
        "Set that the rows belong to: target (the default) or background. For a model of several "
        "sets, its name; by default, the set of each row in the same column as in the fit.",
    ),
    "std": option(None, "Add posterior standard deviations, as columns NAME_std.", "--std"),
}


def with_options(*groups: Group) -> Callable[[Command], Command]:
    """Decorate a command with the options of some groups, with other defaults if given."""

    def decorate(command: Command) -> Command:
        signature, kind = inspect.signature(command), inspect.Parameter.KEYWORD_ONLY
        own = [p for p in signature.parameters.values() if p.default is not p.empty]
        before, after = (
            [
                inspect.Parameter(name, kind, annotation=annotation, default=default)
                for group in chosen
                for name, (annotation, default) in group.items()
            ]
            for chosen in (groups, [LAYOUT])
        )
        parameters = [*before, *own, *after]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


class Source(NamedTuple):
    """The files of two sets, and how their rows and features are chosen."""

    file: Path
    background_file: Path | None
    choice: "Choice"
    scale: str
    features: list[str]


def take_source(said: Said) -> Source:
    """Take the values of the groups SETS and LAYOUT, and the columns that MODEL names."""
    from contrastive_lvm.io.tables.choose_rows import Choice
    from contrastive_lvm.io.tables.table import layout_of

    file, background_file, scale, features = (
        said.pop(name) for name in ("file", "background_file", "scale", "features")
    )
    sizes = said.get("size_factors")
    columns = {
        "annotations": said.pop("annotation"),
        "covariates": said.pop("covariate", None),
        "sizes": None if sizes in ("total", "none") else sizes,
        **{name: said.pop(name) for name in ("layer", "replicates", *SIDES)},
    }
    known = {name: value for name, value in columns.items() if value not in (None, [])}
    layout = layout_of(**{name: said.pop(name) for name in LAYOUT})
    return Source(file, background_file, Choice(**known, layout=layout), scale, features or [])
