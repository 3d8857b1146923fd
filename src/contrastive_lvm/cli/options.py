"""Options that several commands have, so that each is described once."""

from pathlib import Path
from typing import Annotated

import typer

# The options by which the parameters of estimators are given.
OPTION_OF = {
    "n_target": "--n-target",
    "n_shared": "--n-shared",
    "likelihood": "--likelihood",
    "shared_prior": "--shared-prior",
    "target_prior": "--target-prior",
    "inference": "--inference",
    "n_init": "--n-init",
    "random_state": "--seed",
    "size_factors": "--size-factors",
    "background_size_factors": "--size-factors",
}
LARGEST_SEED = 2**32 - 1  # what scikit-learn takes


def _seed(value: str | int) -> int:
    text = str(value)  # the default comes as the number it is
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number <= LARGEST_SEED:
        raise typer.BadParameter(f"{text!r} is not a whole number from 0 to {LARGEST_SEED}")
    return number


Seed = Annotated[int, typer.Option(metavar="N", parser=_seed, help="Seed of all that is random.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

TargetFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The target: .csv, .tsv (.gz), .parquet, .npy, .npz, .h5ad, or a 10x folder.",
    ),
]
BackgroundFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="BACKGROUND", help="The background; left out if FILE has both (--by, --target)."
    ),
]
By = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of FILE that says which set.")
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VALUE",
        help="Rows of the target: a value of --by, or COLUMN=VALUE; may be repeated.",
    ),
]
Background = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VALUE",
        help="Rows of the background, in the same way; by default all others in --by.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=VALUE",
        help="Use only such rows (or COLUMN!=VALUE). Of one column any value will do, "
        "conditions on several columns must all hold.",
    ),
]
Annotation = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Keep a column of numbers out of the model."),
]
Scale = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help="standard, robust or none: units of the features, from both sets together.",
    ),
]
NTarget = Annotated[int, typer.Option(metavar="N", help="Dimensions that only the target has.")]
NShared = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Dimensions shared with the background, or auto (default 10, vae 8)."
    ),
]
Likelihood = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="gaussian, student_t, poisson, negative_binomial, bernoulli or mixed; with settings "
        "as in gaussian:noise=feature, student_t:df=learn,per=sample, mixed:features=FILE "
        "(a table of feature and kind).",
    ),
]
Layer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Of .h5ad files: a layer in place of X, or raw for what .raw holds."
    ),
]
SizeFactors = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="Sizes of rows of counts: total (of each row, the default), none, or a COLUMN of the "
        "file, which transform and the others then read too.",
    ),
]
SIZES_BY_WORD = ("total", "none")


def size_column(given: str | None) -> str | None:
    """The column that --size-factors names, if it is no word for something else."""
    return None if given in SIZES_BY_WORD else given


SharedPrior = Annotated[
    str | None, typer.Option(metavar="KIND", help="flat, ard, group_lasso or horseshoe.")
]
TargetPrior = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="The same; with settings as in group_lasso:rho=400, horseshoe:scale=0.1,groups=FILE "
        "(a table of feature and group).",
    ),
]
Inference = Annotated[
    str,
    typer.Option(
        metavar="ENGINE",
        help="auto, em, vb, svi or nuts; with settings as in em:max_iter=5000, nuts:n_draws=1000.",
    ),
]
NInit = Annotated[int, typer.Option(metavar="N", help="Fits to run; the best is kept.")]
Top = Annotated[int, typer.Option(metavar="N", min=1, help="Features to print a dimension.")]

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="What clvm fit has written.")]
RowsFile = Annotated[Path, typer.Argument(metavar="FILE", help="Rows, in any format of clvm fit.")]
Of = Annotated[str, typer.Option(metavar="SET", help="Rows are of the target or the background.")]
TableOutput = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write .csv, .tsv (.gz), .npy or .parquet; by default CSV is printed.",
    ),
]
Std = Annotated[bool, typer.Option("--std", help="Add standard deviations, columns NAME_std.")]
