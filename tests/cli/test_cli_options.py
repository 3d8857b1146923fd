"""Every setting of every model can be given on the command line."""

import inspect
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import contrastive_lvm as clvm
from contrastive_lvm.cli.fit import fit
from contrastive_lvm.cli.parse_options import bind_to_features, build_estimator
from contrastive_lvm.cli.select import select
from contrastive_lvm.estimators.parse_params import ENGINES, LIKELIHOODS, PRIORS, engine_class
from contrastive_lvm.likelihoods.counts import SizeFactors

# For each setting a word and what it stands for; a setting that is not here fails the tests.
SETTINGS: dict[str, tuple[str, Any]] = {
    # of likelihoods
    "noise": ("feature", "feature"),
    "sets": ("own", "own"),
    "df": ("learn", "learn"),
    "per": ("sample", "sample"),
    "size_factors": ("none", "none"),
    "dispersion": ("shared", "shared"),
    # of priors
    "a0": ("0.5", 0.5),
    "b0": ("2", 2),
    "drop": ("false", False),
    "rho": ("3.5", 3.5),
    "scale": ("0.1", 0.1),
    "delta": ("0.01", 0.01),
    "p0": ("0.9", 0.9),
    # of engines
    "max_iter": ("77", 77),
    "tol": ("1e-3", 1e-3),
    "memory": ("3", 3),
    "learning_rate": ("0.005", 0.005),
    "batch_size": ("64", 64),
    "n_particles": ("2", 2),
    "family": ("low_rank", "low_rank"),
    "rank": ("4", 4),
    "augmented": ("false", False),
    "n_warmup": ("60", 60),
    "n_draws": ("70", 70),
    "n_chains": ("3", 3),
    "target_accept": ("0.9", 0.9),
    "max_tree_depth": ("5", 5),
    # of networks
    "hidden_layer_sizes": ("16+32", (16, 32)),
    "activation": ("elu", "elu"),
    "separation": ("3", 3.0),
    "max_epochs": ("5", 5),
    "kl_warm_up": ("0.1", 0.1),
    "clip": ("0.5", 0.5),
    "validation_fraction": ("0.2", 0.2),
    "patience": ("none", None),
    "checkpoint": ("state.ckpt", "state.ckpt"),
    "refine_steps": ("0", 0),
    "n_devices": ("1", 1),
}
TABLES = {"groups", "kinds", "given"}  # come from files; tests of their own below
PYTHON_ONLY = {"start", "encoder", "decoder"}  # states and networks, which are no settings
OPTIONS: dict[str, tuple[Any, Any]] = {  # parameters of estimators that are options by themselves
    "n_target": (3, 3),
    "n_shared": ("4", 4),
    "n_background": (1, 1),
    "likelihood": ("student_t", clvm.StudentT()),
    "shared_prior": ("ard", clvm.ARD()),
    "target_prior": ("horseshoe", clvm.Horseshoe()),
    "inference": ("em", clvm.EM()),
    "n_init": (2, 2),
    "random_state": (7, 7),
}
RENAMED = {"random_state": "seed"}
BY_ITSELF = {"verbose"}  # there is progress whenever somebody looks at it
IN_PYTHON = {"covariate_effects", "latent_prior"}  # only
PLACES: dict[str, dict[str, Any]] = {
    "likelihood": LIKELIHOODS,
    "target_prior": PRIORS,
    "inference": {name: engine_class(name) for name in ENGINES},
}

COMBINATIONS = [
    (place, word, field.name)
    for place, kinds in PLACES.items()
    for word, kind in kinds.items()
    for field in fields(kind)  # type: ignore[arg-type,unused-ignore]
    if field.name not in TABLES | PYTHON_ONLY
]


@pytest.mark.parametrize(("place", "word", "name"), COMBINATIONS)
def test_settings_of_priors_likelihoods_and_engines(place: str, word: str, name: str) -> None:
    said, value = SETTINGS[name]
    options: dict[str, Any] = {place: f"{word}:{name}={said}"}
    found = getattr(build_estimator(**options), place)
    assert isinstance(found, PLACES[place][word])
    assert getattr(found, name) == value
    default = PLACES[place][word]()
    assert getattr(default, name) != value, "the test would not see a setting that is ignored"


def parameters(kind: type) -> list[str]:
    left_out = BY_ITSELF | IN_PYTHON | PYTHON_ONLY
    return [name for name in inspect.signature(kind).parameters if name not in left_out]


@pytest.mark.parametrize("name", parameters(clvm.ContrastiveLVM))
def test_parameters_of_the_linear_model(name: str) -> None:
    said, value = OPTIONS[name]
    option = RENAMED.get(name, name)
    options: dict[str, Any] = {option: said}
    assert getattr(build_estimator(**options), name) == value
    assert option in inspect.signature(fit).parameters


@pytest.mark.parametrize("name", parameters(clvm.ContrastiveVAE))
def test_parameters_of_networks(name: str) -> None:
    if name in SETTINGS:
        said, value = SETTINGS[name]
        made = build_estimator(model=f"vae:{name}={said}")
    else:
        said, value = OPTIONS[name] if name != "likelihood" else ("poisson", clvm.Poisson())
        options: dict[str, Any] = {RENAMED.get(name, name): said}
        made = build_estimator(model="vae", **options)
    assert getattr(made, name) == value
    assert getattr(clvm.ContrastiveVAE(), name) != value


def test_arguments_of_fit() -> None:
    files = {"self", "X", "y", "background"}
    weights = {"sample_weight", "background_sample_weight"}  # in Python only
    replicates = {"groups", "background_groups"}  # --replicates COLUMN
    known = {"covariates", "background_covariates"}  # --covariate COLUMN
    linear = set(inspect.signature(clvm.ContrastiveLVM.fit).parameters) - files - weights
    linear -= replicates | known
    assert linear == {"size_factors", "background_size_factors"}  # --size-factors COLUMN
    assert set(get_args(SizeFactors)) == {"total", "none"}  # all other words are columns
    network = set(inspect.signature(clvm.ContrastiveVAE.fit).parameters) - files - known
    assert network == {"resume"}
    assert build_estimator(model="vae:resume=a.ckpt").hidden_layer_sizes == (128, 256)


def test_options_that_two_commands_share_are_the_same() -> None:
    ours, others = (inspect.signature(command).parameters for command in (fit, select))
    for name in set(ours).intersection(others) - {"output", "resamples"}:
        assert ours[name] == others[name]


def test_what_comes_from_files(tmp_path: Path) -> None:
    groups = tmp_path / "groups.csv"
    groups.write_text("feature,group\na,gaussian\nb,poisson\n")
    for prior in ("group_lasso", "horseshoe"):
        made = build_estimator(target_prior=f"{prior}:groups={groups}")
        assert made.target_prior.groups == {"gaussian": ["a"], "poisson": ["b"]}
        bind_to_features(made, ["a", "b"])
        assert made.target_prior.groups == (0, 1)
    mixed = build_estimator(likelihood=f"mixed:features={groups}")
    bind_to_features(mixed, ["a", "b"])
    assert mixed.likelihood.kinds == {"gaussian": (0,), "poisson": (1,)}
    sites = tmp_path / "sites.json"
    sites.write_text(json.dumps({"log noise": 0.5, "mean": [1.0, 2.0]}))
    given = build_estimator(inference=f"nuts:given={sites}").inference.given
    np.testing.assert_array_equal(given["mean"], [1.0, 2.0])
    for text in ("[1, 2]", "{", '{"log noise": "x"}', "3"):
        sites.write_text(text)
        with pytest.raises(ValueError, match=r"--inference: given=.* is not a JSON file of names"):
            build_estimator(inference=f"nuts:given={sites}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size_factors": "total"}, "needs --likelihood poisson or negative_binomial"),
        (
            {"size_factors": "depth", "likelihood": "poisson", "model": "vae"},
            "is not supported by --model vae; use total or none",
        ),
        (
            {"likelihood": "poisson:size_factors=some"},
            "--likelihood poisson:size_factors='some' is unknown",
        ),
    ],
)
def test_size_factors_that_make_no_sense(options: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        build_estimator(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("likelihood", ["student_t", "mixed:features=kinds.csv"])
def test_a_column_of_size_factors_needs_counts(
    likelihood: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kinds.csv").write_text("feature,kind\na,gaussian\nb,bernoulli\n")
    made = build_estimator(likelihood=likelihood, size_factors="depth")
    bind_to_features(made, ["a", "b"])
    with pytest.raises(ValueError, match="--size-factors='depth' needs --likelihood poisson"):
        bind_to_features(made, ["a", "b"], "depth")
    Path("kinds.csv").write_text("feature,kind\na,gaussian\nb,poisson\n")
    made = build_estimator(likelihood="mixed:features=kinds.csv", size_factors="depth")
    bind_to_features(made, ["a", "b"])
    bind_to_features(made, ["a", "b"], "depth")


def test_size_factors_by_word() -> None:
    made = build_estimator(likelihood="negative_binomial:dispersion=shared", size_factors="none")
    assert made.likelihood == clvm.NegativeBinomial("none", "shared")
    made = build_estimator(likelihood="poisson", size_factors="total", model="vae")
    assert made.likelihood == clvm.Poisson("total")


def test_noise_of_each_sets_own() -> None:
    assert build_estimator(own_noise=True).likelihood == clvm.Gaussian(sets="own")
    with pytest.raises(ValueError, match=r"--likelihood=Poisson.* has no noise variances"):
        build_estimator(own_noise=True, likelihood="poisson")
