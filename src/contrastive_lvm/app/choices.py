"""The choices of a user on the page, as a command and as Python code."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

Decimal = Literal["", "point", "comma"]
Scale = Literal["none", "standard", "robust"]
Values = Literal["measurements", "counts", "binary"]


@dataclass(frozen=True)
class Choices:
    """All choices of the page; the defaults are those of `clvm fit`."""

    # How the files are read.
    sheet: str = ""
    decimal: Decimal = ""
    transpose: bool = False
    skip_rows: str = ""
    na: list[str] = field(default_factory=list)
    layer: str = ""
    index: str = ""
    drop: list[str] = field(default_factory=list)
    annotation: list[str] = field(default_factory=list)
    features: list[str] = field(default_factory=list)
    # Which rows are target and background.
    by: str = ""
    target: list[str] = field(default_factory=list)
    background: list[str] = field(default_factory=list)
    where: list[str] = field(default_factory=list)
    replicates: str = ""
    # What the questions choose.
    values: Values = "measurements"
    robust: bool = False
    sparse: bool = False
    subgroups: bool = False
    scale: Scale = "none"
    errors: bool = False
    n_target: str = "2"
    n_shared: str = "auto"

    @property
    def likelihood(self) -> str:
        """The likelihood that the answers choose."""
        if self.values != "measurements":
            return {"counts": "negative_binomial", "binary": "bernoulli"}[self.values]
        return "student_t" if self.robust else "gaussian"


READING = ("sheet", "decimal", "transpose", "skip_rows", "na", "layer")
CLASSES = {
    "gaussian": "Gaussian",
    "student_t": "StudentT",
    "negative_binomial": "NegativeBinomial",
    "bernoulli": "Bernoulli",
}
HINTS = get_type_hints(Choices)


def parse_choices(given: object) -> Choices:
    """Parse choices that came from outside, or refuse them."""
    if not isinstance(given, Mapping):
        raise TypeError("the choices are not a JSON object; load the page again.")
    known = {own.name for own in fields(Choices)}
    for name, value in given.items():
        if name not in known or not _is_valid(HINTS[name], value):
            raise ValueError(f"the choice {name!r} is not valid; load the page again.")
    return Choices(**given)


def _is_valid(hint: object, value: object) -> bool:
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if hint is bool:
        return isinstance(value, bool)
    texts = [value] if hint is str else value
    return isinstance(texts, list) and all(  # names and values are short
        isinstance(text, str) and len(text) <= 1000 and text.isprintable() for text in texts
    )


def as_json(choices: Choices) -> dict[str, Any]:
    """Return choices as the page takes them."""
    return asdict(choices)


def fit_arguments(choices: Choices, files: list[Path | str], name: str) -> list[str]:
    """Return the arguments of the `clvm` command that fits the chosen model.

    >>> fit_arguments(Choices(by="group", target=["case"]), ["a.csv"], "fit1")
    ['fit', 'a.csv', '--by=group', '--target=case', '--output=fit1.clvm', '--report=fit1.html']
    """
    options: dict[str, Any] = {
        "by": choices.by,
        **_sides(choices),
        **{own: getattr(choices, own) for own in ("where", "annotation", "features", "index")},
        **{own: getattr(choices, own) for own in ("drop", "layer", *READING[:5], "replicates")},
        "scale": choices.scale,
        "likelihood": choices.likelihood,
        "target_prior": "horseshoe" if choices.sparse else "",
        "subgroups": "auto" if choices.subgroups else "",
        "bootstrap": "200" if choices.errors else "",
        "n_target": choices.n_target,
        "n_shared": choices.n_shared,
    }
    usual = {"scale": "none", "likelihood": "gaussian", "n_target": "2", "n_shared": "auto"}
    said = ["fit", *map(str, files)]
    for option, value in options.items():
        texts = value if isinstance(value, list) else [value]
        for text in texts:
            if text is True:
                said.append(f"--{option.replace('_', '-')}")
            elif text and text != usual.get(option):
                said.append(f"--{option.replace('_', '-')}={text}")
    return [*said, f"--output={name}.clvm", f"--report={name}.html"]


def _sides(choices: Choices) -> dict[str, list[str]]:
    """Write the values of both sets so that an equals sign in one is not read as a condition."""
    by, sides = choices.by, {"target": choices.target, "background": choices.background}
    return {
        side: [f"{by}={text}" if "=" in text else text for text in texts]
        for side, texts in sides.items()
    }


def command(arguments: list[str]) -> str:
    """Return a command as it is typed."""
    return shlex.join(["clvm", *arguments])


def python_code(choices: Choices, files: list[Path | str], name: str) -> str:
    """Return the Python code that does the same as the command."""
    layout = {own: getattr(choices, own) for own in ("na", "transpose", "index", "drop")}
    layout |= {own: getattr(choices, own) for own in ("sheet", "decimal", "skip_rows")}
    columns = {
        "by": choices.by,
        **_sides(choices),
        "where": choices.where,
        "annotations": choices.annotation,
        "layer": choices.layer,
        "replicates": choices.replicates,
    }
    chosen = _keywords(columns)
    if any(layout.values()):
        chosen.append(f"layout=layout_of({', '.join(_keywords(layout))})")
    model = [f"n_target={_number(choices.n_target)}", f"n_shared={_number(choices.n_shared)}"]
    model.append(f"likelihood=clvm.{CLASSES[choices.likelihood]}()")
    model += ["target_prior=clvm.Horseshoe()"] if choices.sparse else []
    model += ['latent_prior=clvm.Mixture("auto")'] if choices.subgroups else []
    paths = [f"Path({str(own)!r})" for own in files] + ["None"]
    arguments = [*paths[:2], f"Choice({', '.join(chosen)})", f"scale={choices.scale!r}"]
    arguments += [f"features={choices.features!r}"] if choices.features else []
    errors = ", n_bootstrap=200" if choices.errors else ""
    return f"""from pathlib import Path

import contrastive_lvm as clvm
from contrastive_lvm.io.model_files import write_model
from contrastive_lvm.io.tables.choose_rows import Choice
from contrastive_lvm.io.tables.table import layout_of
from contrastive_lvm.io.tables.prepare import read_sets
from contrastive_lvm.report.evidence import gather, replicates_of
from contrastive_lvm.report.page import page
from contrastive_lvm.report.page_data import page_data

sets = read_sets({", ".join(arguments)})
target, background = sets.frames()
model = clvm.ContrastiveLVM({", ".join(model)}, random_state=0)
model.fit(target, background=background, **replicates_of(sets))
evidence = gather(model, sets{errors}, seed=0)
print(evidence.verdict["sentence"])
write_model(model, {f"{name}.clvm"!r}, sets.preparation)
facts = page_data(model, sets, title={Path(files[0]).name!r}, evidence=evidence)
Path({f"{name}.html"!r}).write_text(page(facts), encoding="utf-8")
"""


def _keywords(values: dict[str, Any]) -> list[str]:
    return [f"{name}={value!r}" for name, value in values.items() if value]


def _number(text: str) -> str:
    return text if text.isdecimal() else repr(text)
