"""Estimators from options such as `--likelihood student_t:df=learn,per=sample`."""

import csv
import inspect
import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from contrastive_lvm.arrays import Array
from contrastive_lvm.cli.options import OPTION_OF
from contrastive_lvm.cli.output import Contrastive
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.parse_params import ENGINES, LIKELIHOODS, PRIORS, engine_class
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.io.atomic import special_kind
from contrastive_lvm.likelihoods.base import Likelihood
from contrastive_lvm.priors.mixture import Mixture

MODELS = ("clvm", "vae")
PYTHON_ONLY = {"verbose", "encoder", "decoder"}  # parameters that --model vae does not take
NO_COUNTS = "needs --likelihood poisson or negative_binomial; otherwise leave it out."
Setting = None | bool | int | float | str
Settings = dict[str, Setting]


def build_estimator(
    *,
    model: str = "clvm",
    n_target: str | int = 2,
    n_shared: str | None = None,
    likelihood: str = "gaussian",
    own_noise: bool = False,
    size_factors: str | None = None,
    seed: int = 0,
    verbose: bool = False,
    block: Sequence[str] | None = None,
    **linear: Any,
) -> Contrastive:
    """Return the estimator that the options of a command describe; no data is read.

    `linear` are options of linear models alone: priors, subgroups, engines, starts.
    """
    kind, settings = split_settings("--model", model, MODELS)
    common: dict[str, Any] = {
        "n_target": _size("--n-target", n_target),
        "random_state": seed,
        "verbose": verbose,
        "likelihood": _likelihood(likelihood, size_factors, kind, own_noise=own_noise),
    }
    if n_shared is not None:
        common["n_shared"] = _size("--n-shared", n_shared)
    if kind == "vae":
        _refuse_linear_options(linear)
        return _network(settings, common)
    _check_settings("--model", kind, settings, ())
    parameters = common | _linear_parameters(**linear)
    if not block:
        return ContrastiveLVM(**parameters)
    from contrastive_lvm.cli.fit_blocks import parse_blocks
    from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM

    for name in ("n_target", "n_shared", "n_background"):
        parameters.pop(name, None)
    return MultiSetLVM(parse_blocks(block), **parameters)


def _linear_parameters(
    *, subgroups: str | None = None, inference: str = "auto", **others: Any
) -> dict[str, Any]:
    """Return objects in place of the words that stand for them."""
    found = {name: value for name, value in others.items() if value is not None}
    for name in {"shared_prior", "target_prior"}.intersection(found):
        word, settings = split_settings(OPTION_OF[name], found[name], PRIORS)
        found[name] = _build(OPTION_OF[name], word, settings, PRIORS[word])
    if subgroups is not None:
        found["latent_prior"] = Mixture(_size("--subgroups", subgroups))
    if inference != "auto":
        word, settings = split_settings("--inference", inference, (*ENGINES, "auto"))
        found["inference"] = _build("--inference", word, settings, engine_class(word))
    return found


def _size(option: str, value: str | int) -> int | str:
    if value != "auto" and not str(value).isdecimal():
        raise InvalidParameterError(option, value, "must be a non-negative integer or auto.")
    return value if value == "auto" else int(value)


def _refuse_linear_options(given: dict[str, Any]) -> None:
    defaults = inspect.signature(ContrastiveLVM).parameters
    for name, value in given.items():
        if value != defaults["latent_prior" if name == "subgroups" else name].default:
            option = f"--{name.replace('_', '-')}"
            raise ValueError(f"{option} does not apply to --model vae; leave it out.")


def _network(settings: Settings, common: dict[str, Any]) -> Contrastive:
    from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE

    own = set(inspect.signature(ContrastiveVAE).parameters) - set(OPTION_OF) - PYTHON_ONLY
    _check_settings("--model", "vae", settings, own | {"resume"})
    if "hidden_layer_sizes" in settings:
        common["hidden_layer_sizes"] = _widths(settings.pop("hidden_layer_sizes"))
    common |= {name: value for name, value in settings.items() if name != "resume"}  # of `fit`
    return ContrastiveVAE(**common)


def _widths(value: Setting) -> tuple[int, ...]:
    parts = [] if value in (None, "") else str(value).split("+")
    if not all(part.isdecimal() for part in parts):
        reason = "is not a list of layer widths; write hidden_layer_sizes=128+256."
        raise InvalidParameterError("--model vae:hidden_layer_sizes", value, reason)
    return tuple(int(part) for part in parts)


def _likelihood(text: str, size_factors: str | None, model: str, *, own_noise: bool) -> Likelihood:
    word, settings = split_settings("--likelihood", text, (*LIKELIHOODS, "mixed"))
    if word == "mixed":
        from contrastive_lvm.likelihoods.mixed import Mixed

        _check_settings("--likelihood", word, settings, ("features",))
        found: Likelihood = Mixed(
            _feature_table("--likelihood", "features", settings.get("features"))
        )
    else:
        found = _build("--likelihood", word, settings, LIKELIHOODS[word])
    if own_noise and not found._has_own_noise:
        changed = found._with_own_noise()
        if changed is None:
            reason = "has no noise variances; leave --own-noise out."
            raise InvalidParameterError("--likelihood", found, reason)
        found = changed
    return found if size_factors is None else _sized(found, size_factors, model)


def _sized(likelihood: Any, size_factors: str, model: str) -> Any:
    """Return the likelihood with size factors given by a word; those of a column go to `fit`."""
    if size_factors in ("total", "none"):
        if hasattr(likelihood, "size_factors"):
            return replace(likelihood, size_factors=size_factors)
        raise InvalidParameterError("--size-factors", size_factors, NO_COUNTS)
    if model == "vae":
        reason = "is not supported by --model vae; use total or none."
        raise InvalidParameterError("--size-factors", size_factors, reason)
    if getattr(likelihood, "size_factors", None) == "auto":  # of a mixture with few counts
        return replace(likelihood, size_factors="total")
    return likelihood


def _build(option: str, word: str, settings: Settings, kind: Any) -> Any:
    """Return the object of a class that a word and its settings stand for."""
    known = {field.name for field in fields(kind)} - {"start"}  # can be given in Python only
    _check_settings(option, word, settings, known)
    values: dict[str, object] = {**settings}
    if "groups" in settings:
        values["groups"] = _feature_table(option, "groups", settings["groups"])
    if settings.get("size_factors", "") is None:
        values["size_factors"] = "none"  # the word, not a missing value
    if "given" in settings:
        values["given"] = _sites(option, settings["given"])
    try:
        return kind(**values)
    except InvalidParameterError as error:
        setting = f"{option} {word}:{error.parameter}"
        raise InvalidParameterError(setting, error.value, error.reason) from error


def split_settings(option: str, text: str, known: Iterable[str]) -> tuple[str, Settings]:
    """Return a word that is known, and its settings.

    >>> split_settings("--likelihood", "student-t:df=learn,per=sample", ["gaussian", "student_t"])
    ('student_t', {'df': 'learn', 'per': 'sample'})
    """
    given, _, rest = text.partition(":")
    word = given.strip().replace("-", "_")
    if word not in known:
        raise ValueError(f"{option} {given} is unknown; use {', '.join(known)}.")
    settings: Settings = {}
    for part in rest.split(",") if rest else []:
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ValueError(
                f"{option} {text}: {part!r} is not a setting; write {option} {word}:NAME=VALUE."
            )
        settings[name.strip().replace("-", "_")] = _value(value.strip())
    return word, settings


def setting_files(*options: str | None) -> list[Path]:
    """Return the files that settings of options may name."""
    parts = [part for text in options if text for part in text.partition(":")[2].split(",")]
    return [Path(value) for value in (part.partition("=")[2] for part in parts) if value]


def _value(text: str) -> Setting:
    literals = {"none": None, "true": True, "false": False}
    if text.lower() in literals:
        return literals[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_settings(option: str, word: str, settings: Settings, known: Iterable[str]) -> None:
    for name in settings:
        if name not in known:
            way = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ValueError(f"{option} {word} has no setting {name!r}; {way}.")


def _sites(option: str, path: Setting) -> dict[str, Array]:
    """Return values of sites by name, from a JSON file."""
    try:
        found = dict(json.loads(_text(path)))
        return {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{option}: given={path} is not a JSON file of names and numbers; write "
            '{"log noise": 0.0} into one.'
        ) from error


def _text(path: Setting) -> str:
    """Return the text of a file that a setting names."""
    place = Path(str(path))
    if kind := special_kind(place):
        raise OSError(f"{place} is a {kind}")
    text = place.read_text(encoding="utf-8-sig")
    if "\0" in text:
        raise ValueError(f"{place} is not text")
    return text


def _feature_table(option: str, setting: str, path: Setting) -> dict[str, list[str]]:
    """Return the features of each group, from a table of features and groups."""
    way = "name a table with two columns, feature and group, and a header."
    if path is None:
        raise ValueError(f"{option} needs {setting}=FILE; {way}")
    try:
        lines = _text(path).splitlines()
    except (OSError, ValueError) as error:
        raise ValueError(f"{option}: {setting}={path} cannot be read; {way}") from error
    separator = "\t" if lines and "\t" in lines[0] else ","
    rows = [row for row in csv.reader(lines[1:], delimiter=separator) if row]
    if not rows or any(len(row) != 2 for row in rows):
        raise ValueError(f"{option}: {setting}={path} does not have two columns; {way}")
    found: dict[str, list[str]] = {}
    for feature, group in rows:
        found.setdefault(group.strip(), []).append(feature.strip())
    return found


def bind_to_features(
    estimator: Contrastive, features: Sequence[str], sizes: str | None = None
) -> None:
    """Replace names of features in priors and likelihoods by their positions in the data.

    Size factors of a column are refused by a likelihood that has no use for them.
    """
    for name in ("shared_prior", "target_prior", "likelihood"):
        given = getattr(estimator, name, None)
        if given is not None:
            try:
                bound = given._bind(len(features), features)
            except ValueError as error:
                raise ValueError(f"{OPTION_OF[name]}: {error}") from error
            estimator.set_params(**{name: bound})
    if sizes is not None and not estimator.likelihood._sized_features(len(features)).any():
        raise InvalidParameterError("--size-factors", sizes, NO_COUNTS)
