"""Options that several commands share, each described once."""

from pathlib import Path
from typing import Annotated

import typer

# The options by which the parameters of the library are given.
OPTION_OF = {
    "n_target": "--n-target",
    "n_shared": "--n-shared",
    "n_background": "--n-background",
    "blocks": "--block",
    "likelihood": "--likelihood",
    "shared_prior": "--shared-prior",
    "target_prior": "--target-prior",
    "latent_prior": "--subgroups",
    "n_components": "--subgroups",
    "inference": "--inference",
    "n_init": "--n-init",
    "random_state": "--seed",
    "size_factors": "--size-factors",
    "background_size_factors": "--size-factors",
    "covariates": "--covariate",
    "background_covariates": "--covariate",
    "n_rhos": "--strengths",
    "groups": "--replicates",
    "background_groups": "--replicates",
    "n_resamples": "--resamples",
    "of": "--of",
    "alpha": "--alpha",
}


def _seed(value: str | int) -> int:
    text = str(value)  # the default is passed as a number
    number = int(text) if text.isdecimal() else -1
    if not 0 <= number < 2**32:  # as scikit-learn accepts
        raise typer.BadParameter(f"{text!r} is not an integer from 0 to {2**32 - 1}")
    return number


Seed = Annotated[int, typer.Option(metavar="N", parser=_seed, help="Seed for random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]

TargetFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="The target set: .csv, .tsv (.gz), .parquet, .npy, .npz, .h5ad or a 10x folder.",
    ),
]
BackgroundFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="BACKGROUND",
        help="The background set; omit it if FILE holds both sets (see --by and --target).",
    ),
]
By = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of FILE that tells the sets apart.")
]
Target = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VALUE",
        help="Rows of the target: a value of the --by column, or COLUMN=VALUE. Repeatable.",
    ),
]
Background = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VALUE",
        help="Rows of the background, given in the same way; by default, all other values of the "
        "--by column.",
    ),
]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=VALUE",
        help="Use only rows that match (or COLUMN!=VALUE). Repeatable: values of the same column "
        "are alternatives; conditions on different columns must all hold.",
    ),
]
Annotation = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Keep a numeric column out of the model. Repeatable."),
]
Features = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Use only these columns as features (repeatable), or all columns of numbers (all), "
        "also those that seem to name rows.",
    ),
]
Scale = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help="How to scale the features, using both sets together: standard, robust or none.",
    ),
]
Model = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="clvm (linear) or vae (neural networks); settings follow a colon, as in "
        "vae:hidden_layer_sizes=128+256,max_epochs=50.",
    ),
]
NTarget = Annotated[
    str,
    typer.Option(
        metavar="N",
        help="Number of dimensions that only the target has, or auto for as many as the test of "
        "contrast supports.",
    ),
]
NShared = Annotated[
    str | None,
    typer.Option(
        metavar="N", help="Number of dimensions shared by both sets, or auto (default auto; vae 8)."
    ),
]
NSubgroups = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        help="Look for so many subgroups of the target's rows, or auto for as many as are "
        "separated by valleys, which may be one.",
    ),
]
NBackground = Annotated[
    int, typer.Option(metavar="N", min=0, help="Number of dimensions only the background has.")
]
Blocks = Annotated[
    list[str] | None,
    typer.Option(
        "--block",
        metavar="NAME=N:SETS",
        help="For any number of sets, told apart by --by: dimensions that the named sets have and "
        "others have not, as in drugs=2:a+b; without names, all sets (shared=10). Repeatable. N "
        "may be auto, and --block auto alone finds which sets have which dimensions.",
    ),
]
Covariates = Annotated[
    list[str] | None,
    typer.Option(
        "--covariate",
        metavar="COLUMN",
        help="Estimate the effect of a column, such as age or batch, on the mean of the rows, so "
        "that it is not taken for structure; a category if it has words. Repeatable. Commands that "
        "apply the model read the column from their file.",
    ),
]
OwnNoise = Annotated[
    bool, typer.Option("--own-noise", help="Give each set noise variances of its own.")
]
Likelihood = Annotated[
    str,
    typer.Option(
        metavar="KIND",
        help="gaussian, student_t, poisson, negative_binomial, bernoulli or mixed; settings follow "
        "a colon, as in gaussian:noise=feature, student_t:df=learn,per=sample or "
        "mixed:features=FILE (a table with the columns feature and kind).",
    ),
]
Replicates = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column that names the replicate (donor, animal, run) of each row; rows of one "
        "replicate are not independent, so tests and errors resample whole replicates.",
    ),
]
Resamples = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Number of resamples of the test of contrast; 0 leaves it out. By default 999; 99 or "
        "none for data so large (rows x features^2 above 5e7 or 5e8) that it would take long.",
    ),
]
Layer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Layer of an .h5ad file to use instead of X, or raw for its .raw."
    ),
]
SizeFactors = Annotated[
    str | None,
    typer.Option(
        metavar="WHICH",
        help="Size factors of rows of counts: total (row totals, the default), none, or a COLUMN "
        "of the file, which the other commands then read as well.",
    ),
]


def size_column(given: str | None) -> str | None:
    """Return the column that --size-factors names, if it names one."""
    return None if given in ("total", "none") else given


SharedPrior = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="Prior of the shared loadings: flat, ard, group_lasso or horseshoe."
    ),
]
TargetPrior = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Prior of the target loadings; settings follow a colon, as in group_lasso:rho=400 or "
        "horseshoe:scale=0.1,groups=FILE (a table with the columns feature and group).",
    ),
]
Inference = Annotated[
    str,
    typer.Option(
        metavar="ENGINE",
        help="auto, em, vb, svi or nuts; settings follow a colon, as in em:max_iter=5000 or "
        "nuts:n_draws=1000.",
    ),
]
NInit = Annotated[
    int, typer.Option(metavar="N", help="Number of fits from different starts; the best is kept.")
]
Top = Annotated[
    int, typer.Option(metavar="N", min=1, help="Number of features to print per dimension.")
]

ModelFile = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file written by clvm fit.")
]
RowsFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="The rows, in any format that clvm fit reads.")
]
Of = Annotated[
    str | None,
    typer.Option(
        metavar="SET",
        help="Set that the rows belong to: target (the default) or background; of a model of "
        "several sets its name, by default that in the column of the fit.",
    ),
]
TableOutput = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write a .csv, .tsv (.gz), .npy or .parquet file; by default, CSV is printed.",
    ),
]
Std = Annotated[
    bool, typer.Option("--std", help="Add posterior standard deviations as columns NAME_std.")
]
