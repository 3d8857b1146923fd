"""Estimators from options such as `--likelihood student_t:df=learn,per=sample`."""

import csv
import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from contrastive_lvm.cli.options import OPTION_OF, size_column
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.parse_params import ENGINES, LIKELIHOODS, PRIORS, engine_class
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.likelihoods.mixed import Mixed

LITERALS = {"none": None, "true": True, "false": False}
FIT_SETTINGS = {"resume"}  # settings of --model vae that are arguments of `fit`
NO_SETTINGS = {"start"}  # what a fit is resumed from can be given in Python only
Features = dict[str, list[Any]]  # names or positions of features, by group


def build_estimator(
    *,
    model: str = "clvm",
    n_target: int = 2,
    n_shared: str | None = None,
    likelihood: str = "gaussian",
    size_factors: str | None = None,
    shared_prior: str | None = None,
    target_prior: str | None = None,
    inference: str = "auto",
    n_init: int = 1,
    seed: int = 0,
    verbose: bool = False,
) -> Any:
    """Return the estimator that the options of a command describe; no data is read."""
    kind, settings = split_settings("--model", model)
    _check_word("--model", kind, ("clvm", "vae"))
    common: dict[str, Any] = {"n_target": n_target, "random_state": seed, "verbose": verbose}
    common["likelihood"] = _sized(_likelihood(likelihood), size_factors, kind)
    if n_shared is not None:
        common["n_shared"] = _n_shared(n_shared)
    linear = {"shared_prior": shared_prior, "target_prior": target_prior, "inference": inference}
    if kind == "vae":
        _refuse_linear_options(linear | {"n_init": n_init})
        return _network(settings, common)
    _check_settings("--model", kind, settings, ())
    objects: dict[str, Any] = {
        name: _build(OPTION_OF[name], text, PRIORS, PRIORS.__getitem__)
        for name, text in (("shared_prior", shared_prior), ("target_prior", target_prior))
        if text is not None
    }
    if inference != "auto":
        engines = (*ENGINES, "auto")
        objects["inference"] = _build("--inference", inference, engines, engine_class)
    return ContrastiveLVM(**common, **objects, n_init=n_init)


def fit_arguments(model: str) -> dict[str, Any]:
    """Return the settings of --model that are arguments of `fit`."""
    settings = split_settings("--model", model)[1]
    return {name: settings[name] for name in FIT_SETTINGS.intersection(settings)}


def _n_shared(text: str) -> int | str:
    if text != "auto" and not text.isdecimal():
        raise InvalidParameterError("--n-shared", text, "must be a non-negative integer or auto.")
    return int(text) if text != "auto" else text


def _refuse_linear_options(given: dict[str, Any]) -> None:
    defaults = inspect.signature(ContrastiveLVM).parameters
    for name, value in given.items():
        if value != defaults[name].default:
            raise ValueError(f"{OPTION_OF[name]} has no meaning for --model vae; leave it out.")


def _network(settings: dict[str, Any], common: dict[str, Any]) -> Any:
    from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE

    own = set(inspect.signature(ContrastiveVAE).parameters) - set(OPTION_OF) - {"verbose"}
    _check_settings("--model", "vae", settings, own | FIT_SETTINGS)
    if "hidden_layer_sizes" in settings:
        settings["hidden_layer_sizes"] = _widths(settings["hidden_layer_sizes"])
    return ContrastiveVAE(**{k: v for k, v in settings.items() if k not in FIT_SETTINGS} | common)


def _widths(value: Any) -> tuple[int, ...]:
    parts = [] if value in (None, "") else str(value).split("+")
    if not all(part.isdecimal() for part in parts):
        reason = "is not a list of layer widths; write hidden_layer_sizes=128+256."
        raise InvalidParameterError("--model vae:hidden_layer_sizes", value, reason)
    return tuple(int(part) for part in parts)


def _likelihood(text: str) -> Any:
    word, settings = split_settings("--likelihood", text)
    if word != "mixed":
        known = (*LIKELIHOODS, "mixed")
        return _build("--likelihood", text, known, LIKELIHOODS.__getitem__)
    _check_settings("--likelihood", word, settings, ("features",))
    return Mixed(_feature_table("--likelihood", "features", settings.get("features")))


def _sized(likelihood: Any, size_factors: str | None, model: str) -> Any:
    """Return the likelihood with size factors given by a word; those of a column go to `fit`."""
    if size_factors is None:
        return likelihood
    by_word = size_column(size_factors) is None
    counts = hasattr(likelihood, "size_factors")
    if not counts and (by_word or not isinstance(likelihood, Mixed)):
        reason = "needs --likelihood poisson or negative_binomial; otherwise leave it out."
        raise InvalidParameterError("--size-factors", size_factors, reason)
    if model == "vae" and not by_word:
        reason = "is not supported by --model vae; use total or none."
        raise InvalidParameterError("--size-factors", size_factors, reason)
    changes: dict[str, Any] = {"size_factors": size_factors} if by_word else {}
    return replace(likelihood, **changes)


def _build(option: str, text: str, known: Iterable[str], class_of: Callable[[str], Any]) -> Any:
    """Return the object that a word and its settings stand for."""
    word, settings = split_settings(option, text)
    _check_word(option, word, known)
    kind = class_of(word)
    _check_settings(option, word, settings, {field.name for field in fields(kind)} - NO_SETTINGS)
    if "groups" in settings:
        settings["groups"] = _feature_table(option, "groups", settings["groups"])
    if settings.get("size_factors", "") is None:
        settings["size_factors"] = "none"  # a word here, not the absence of a value
    if "given" in settings:
        settings["given"] = _sites(option, settings["given"])
    try:
        return kind(**settings)
    except InvalidParameterError as error:
        setting = f"{option} {word}:{error.parameter}"
        raise InvalidParameterError(setting, error.value, error.reason) from error


def split_settings(option: str, text: str) -> tuple[str, dict[str, Any]]:
    """Return a word and its settings.

    >>> split_settings("--likelihood", "student-t:df=learn,per=sample")
    ('student_t', {'df': 'learn', 'per': 'sample'})
    """
    word, _, rest = text.partition(":")
    settings = {}
    for part in rest.split(",") if rest else []:
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ValueError(
                f"{option} {text}: {part!r} is not a setting; write {option} {word}:NAME=VALUE."
            )
        settings[name.strip().replace("-", "_")] = _value(value.strip())
    return word.strip().replace("-", "_"), settings


def _value(text: str) -> Any:
    if text.lower() in LITERALS:
        return LITERALS[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_word(option: str, word: str, known: Iterable[str]) -> None:
    if word not in known:
        raise ValueError(f"{option} {word} is unknown; use {', '.join(known)}.")


def _check_settings(option: str, word: str, settings: dict[str, Any], known: Iterable[str]) -> None:
    for name in settings:
        if name not in known:
            way = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ValueError(f"{option} {word} has no setting {name!r}; {way}.")


def _sites(option: str, path: Any) -> dict[str, Any]:
    """Return values of sites by name, from a JSON file."""
    try:
        found = dict(json.loads(Path(str(path)).read_text(encoding="utf-8")))
        return {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{option}: given={path} is not a JSON file of names and numbers; write "
            '{"log noise": 0.0} into one.'
        ) from error


def _feature_table(option: str, setting: str, path: Any) -> Features:
    """Return the features of each group, from a table of features and groups."""
    way = "name a table with two columns, feature and group, and a header."
    if path is None:
        raise ValueError(f"{option} needs {setting}=FILE; {way}")
    try:
        lines = Path(str(path)).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{option}: {setting}={path} cannot be read; {way}") from error
    separator = "\t" if lines and "\t" in lines[0] else ","
    rows = [row for row in csv.reader(lines[1:], delimiter=separator) if row]
    if not rows or any(len(row) != 2 for row in rows):
        raise ValueError(f"{option}: {setting}={path} does not have two columns; {way}")
    found: Features = {}
    for feature, group in rows:
        found.setdefault(group.strip(), []).append(feature.strip())
    return found


def locate_features(estimator: Any, features: Sequence[str]) -> None:
    """Replace names of features in priors and likelihoods by their positions in the data."""
    position = {name: i for i, name in enumerate(features)}

    def located(option: str, groups: Mapping[str, Iterable[str]]) -> Features:
        unknown = [name for names in groups.values() for name in names if name not in position]
        if unknown:
            raise ValueError(
                f"{option} names the feature {unknown[0]!r}, which the data does not have."
            )
        return {group: [position[name] for name in names] for group, names in groups.items()}

    for name in ("shared_prior", "target_prior"):
        prior: Any = getattr(estimator, name, None)
        if getattr(prior, "groups", None) is not None:
            groups = located(OPTION_OF[name], prior.groups)
            estimator.set_params(**{name: replace(prior, groups=groups)})
    if isinstance(estimator.likelihood, Mixed):
        kinds = located("--likelihood", estimator.likelihood.kinds)
        estimator.set_params(likelihood=Mixed(kinds))
