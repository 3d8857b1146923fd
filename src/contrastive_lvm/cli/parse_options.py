"""From words such as `student_t:df=learn,per=sample` to the library's objects."""

import csv
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from contrastive_lvm.cli.options import size_column
from contrastive_lvm.estimators.contrastive_lvm import ContrastiveLVM
from contrastive_lvm.estimators.contrastive_vae import ContrastiveVAE
from contrastive_lvm.estimators.parse_params import ENGINES, LIKELIHOODS, PRIORS
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.mixed import Mixed
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT

PLAIN = {"none": None, "true": True, "false": False}
IN_TABLES = {"groups", "features"}  # settings that name a file
NOT_WORDS = {"start"}  # what a fit goes on from is no setting; only Python has it
GENERAL = {"self", "n_target", "n_shared", "likelihood", "random_state", "verbose"}
DEFAULT_SHARED = {"clvm": 10, "vae": 8}


class Words:
    """The modelling options of a command, checked before any file is read."""

    def __init__(
        self,
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
    ) -> None:
        self.model, self.settings = _network(model)
        self.n_target, self.n_shared = n_target, _shared(n_shared, self.model)
        self.likelihood = _sized(likelihood, size_factors, self.model)
        self.inference, self.n_init = inference, n_init
        self.priors = {"shared_prior": shared_prior, "target_prior": target_prior}
        self.seed = seed
        if self.model == "vae":
            self._refuse_linear_options()
        self.estimator(None)

    def _refuse_linear_options(self) -> None:
        given = {
            "--shared-prior": self.priors["shared_prior"] is not None,
            "--target-prior": self.priors["target_prior"] is not None,
            "--inference": self.inference != "auto",
            "--n-init": self.n_init != 1,
        }
        for option, is_given in given.items():
            if is_given:
                raise ValueError(f"{option} does not go with --model vae; leave it out.")

    def estimator(self, features: Sequence[str] | None, *, verbose: bool = False) -> Any:
        """The estimator for data with these features; without them tables are not yet read."""
        likelihood = _likelihood(self.likelihood, features)
        common = {"likelihood": likelihood, "random_state": self.seed, "verbose": verbose}
        if self.model == "vae":
            own = {k: v for k, v in self.settings.items() if k != "resume"}
            return ContrastiveVAE(self.n_target, int(self.n_shared), **own, **common)
        priors = {
            name: None if text is None else _built(_option(name), text, PRIORS, features)
            for name, text in self.priors.items()
        }
        engine = "auto"
        if self.inference != "auto":
            engine = _built("--inference", self.inference, ENGINES, features, also="auto, ")
        own = priors | {"inference": engine, "n_init": self.n_init}
        return ContrastiveLVM(self.n_target, self.n_shared, **own, **common)

    @property
    def fit_arguments(self) -> dict[str, Any]:
        """What goes to `fit` beside the data."""
        return {"resume": self.settings["resume"]} if "resume" in self.settings else {}

    @property
    def scalable(self) -> bool:
        """Whether features may be in any units."""
        return isinstance(_likelihood(self.likelihood, None), Gaussian | StudentT)

    @property
    def has_bar(self) -> bool:
        """Whether the library shows how far the fit is; closed forms do not."""
        engine = self.inference.partition(":")[0]
        by_steps = engine in ("svi", "nuts") or (engine == "auto" and not self.scalable)
        return self.model == "vae" or by_steps


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _shared(text: str | None, model: str) -> int | str:
    if text is None:
        return DEFAULT_SHARED[model]
    if text == "auto" and model == "clvm":
        return text
    if not text.isdecimal():
        raise ValueError(f"--n-shared={text} is neither a whole number nor auto; try --n-shared 5.")
    return int(text)


def _network(text: str) -> tuple[str, dict[str, Any]]:
    word, settings = spelled("--model", text)
    known = set(inspect.signature(ContrastiveVAE.__init__).parameters) - GENERAL | {"resume"}
    _check_word("--model", word, DEFAULT_SHARED)
    _check_settings("--model", word, settings, known if word == "vae" else set())
    if "hidden_layer_sizes" in settings:
        settings["hidden_layer_sizes"] = _widths(settings["hidden_layer_sizes"])
    return word, settings


def _widths(value: Any) -> tuple[int, ...]:
    parts = [] if value in (None, "") else str(value).split("+")
    if not all(part.isdecimal() for part in parts):
        raise ValueError(
            f"--model vae:hidden_layer_sizes={value} is not a list of widths; "
            "write hidden_layer_sizes=128+256."
        )
    return tuple(int(part) for part in parts)


def _sized(likelihood: str, size_factors: str | None, model: str) -> str:
    """The likelihood with the size factors that are words; those of a column go to `fit`."""
    if size_factors is None:
        return likelihood
    kind, by_word = _likelihood(likelihood, None), size_column(size_factors) is None
    counts = isinstance(kind, Poisson | NegativeBinomial | Mixed)
    if not counts:
        raise ValueError(
            f"--size-factors={size_factors} is for counts; leave it out, or use --likelihood "
            "poisson or negative_binomial."
        )
    if by_word and isinstance(kind, Mixed):
        raise ValueError(
            f"--size-factors={size_factors} does not go with --likelihood mixed, whose counts have "
            "those of their totals; name a column, or leave it out."
        )
    if by_word:
        joint = "," if ":" in likelihood else ":"
        return f"{likelihood}{joint}size_factors={size_factors}"
    if model == "vae":
        raise ValueError(
            f"--size-factors={size_factors} does not go with --model vae, which takes totals or "
            "none; use --size-factors none, or leave it out."
        )
    return likelihood


def _likelihood(text: str, features: Sequence[str] | None) -> Any:
    return _built("--likelihood", text, LIKELIHOODS | {"mixed": Mixed}, features)


def _built(
    option: str,
    text: str,
    kinds: Mapping[str, Any],
    features: Sequence[str] | None,
    *,
    also: str = "",
) -> Any:
    """The object that a word and its settings stand for."""
    word, settings = spelled(option, text)
    _check_word(option, word, kinds, also)
    kind = kinds[word]
    if kind is Mixed:
        return _mixed(option, settings, features)
    _check_settings(option, word, settings, {f.name for f in fields(kind)} - NOT_WORDS)
    if "groups" in settings:
        settings["groups"] = _tabled(option, "groups", settings["groups"], features)
    if settings.get("size_factors", "") is None:
        settings["size_factors"] = "none"  # a word here, not the absence of a value
    if "given" in settings:
        settings["given"] = _sites(option, settings["given"])
    try:
        return kind(**settings)
    except InvalidParameterError as error:
        setting = f"{option} {word}:{error.parameter}"
        raise InvalidParameterError(setting, error.value, error.reason) from error


def _sites(option: str, path: Any) -> Any:
    """Values of sites by their names, from a JSON file."""
    try:
        found = dict(json.loads(Path(str(path)).read_text(encoding="utf-8")))
        return {name: np.asarray(value, dtype=np.float64) for name, value in found.items()}
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(
            f"{option}: given={path} is no JSON file of names and numbers; write "
            '{"log noise": 0.0} into one.'
        ) from error


def _mixed(option: str, settings: dict[str, Any], features: Sequence[str] | None) -> Any:
    _check_settings(option, "mixed", settings, {"features"})
    kinds = _tabled(option, "features", settings.get("features"), features)
    return Mixed(kinds or {"gaussian": ()})


def spelled(option: str, text: str) -> tuple[str, dict[str, Any]]:
    """A word and its settings.

    >>> spelled("--likelihood", "student-t:df=learn,per=sample")
    ('student_t', {'df': 'learn', 'per': 'sample'})
    """
    word, _, rest = text.partition(":")
    settings = {}
    for part in rest.split(",") if rest else []:
        name, equals, value = part.partition("=")
        if not equals or not name:
            raise ValueError(
                f"{option} {text}: {part!r} is no setting; write {option} {word}:NAME=VALUE."
            )
        settings[name.strip().replace("-", "_")] = _value(value.strip())
    return word.strip().replace("-", "_"), settings


def _value(text: str) -> Any:
    if text.lower() in PLAIN:
        return PLAIN[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _check_word(option: str, word: str, known: Mapping[str, Any], also: str = "") -> None:
    if word not in known:
        raise ValueError(f"{option} {word} is unknown; use {also}{', '.join(known)}.")


def _check_settings(option: str, word: str, settings: dict[str, Any], known: set[str]) -> None:
    for name in settings:
        if name not in known:
            way = f"it has {', '.join(sorted(known))}" if known else "it has none"
            raise ValueError(f"{option} {word} has no setting {name!r}; {way}.")


def _tabled(option: str, what: str, path: Any, features: Sequence[str] | None) -> Any:
    """`{group: [positions]}` from a table of feature and group; None while features are unknown."""
    if path is None:
        raise ValueError(f"{option} needs {what}=FILE, a table of two columns with a header.")
    found: dict[str, list[int]] = {}
    position = {name: i for i, name in enumerate(features or [])}
    for name, group in _pairs(option, what, Path(str(path))):
        if features is None:
            continue
        if name not in position:
            raise ValueError(f"{path} names the feature {name!r}, which the data does not have.")
        found.setdefault(group, []).append(position[name])
    return found or None


def _pairs(option: str, what: str, path: Path) -> list[tuple[str, str]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(
            f"{option}: {what}={path} cannot be read; name a table of two columns with a header."
        ) from error
    tab = "\t" in (lines[0] if lines else "")
    rows = [row for row in csv.reader(lines[1:], delimiter="\t" if tab else ",") if row]
    if not rows or any(len(row) != 2 for row in rows):
        raise ValueError(
            f"{option}: {what}={path} is no table of two columns with a header; give feature and "
            "group in every line."
        )
    return [(row[0].strip(), row[1].strip()) for row in rows]
