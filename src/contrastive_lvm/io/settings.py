"""Parameters of estimators as JSON and back: words, numbers, and the known pieces of models.

What JSON has no word for is an object with one key: `{"tuple": [...]}`, `{"dict": [[key, value],
...]}`, `{"float": "inf"}`, `{"random_state": {...}}`. A piece of a model has two, its class and its
fields: `{"object": "ARD", "fields": {...}}`.
"""

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from contrastive_lvm.black_box.nuts.nuts import NUTS
from contrastive_lvm.black_box.svi.svi import SVI
from contrastive_lvm.coordinate_ascent.em import EM
from contrastive_lvm.coordinate_ascent.variational_bayes import VariationalBayes
from contrastive_lvm.io.container import clipped
from contrastive_lvm.io.schema import Facts
from contrastive_lvm.likelihoods.bernoulli import Bernoulli
from contrastive_lvm.likelihoods.gaussian import Gaussian
from contrastive_lvm.likelihoods.mixed import Mixed
from contrastive_lvm.likelihoods.negative_binomial import NegativeBinomial
from contrastive_lvm.likelihoods.poisson import Poisson
from contrastive_lvm.likelihoods.student_t import StudentT
from contrastive_lvm.priors.ard import ARD
from contrastive_lvm.priors.flat import Flat
from contrastive_lvm.priors.group_lasso import GroupLasso
from contrastive_lvm.priors.horseshoe import Horseshoe

PIECES = (
    *(Gaussian, StudentT, Poisson, NegativeBinomial, Bernoulli, Mixed),
    *(Flat, ARD, GroupLasso, Horseshoe),
    *(EM, VariationalBayes, SVI, NUTS),
)
OBJECTS: dict[str, type] = {kind.__name__: kind for kind in PIECES}
UNBOUNDED = ("inf", "-inf", "nan")


def encoded(name: str, value: Any) -> Any:
    """A parameter, ready for JSON."""
    if name == "random_state" and not isinstance(value, int | np.integer | None):
        return _encoded_state(value)
    return _encoded(name, value)


def _encoded(name: str, value: Any) -> Any:  # noqa: C901 - one line a kind
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"float": str(value)}
    if isinstance(value, tuple | np.ndarray):
        return {"tuple": [_encoded(name, item) for item in value]}
    if isinstance(value, list):
        return [_encoded(name, item) for item in value]
    if isinstance(value, Mapping):
        return {"dict": [[_encoded(name, k), _encoded(name, v)] for k, v in value.items()]}
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if is_dataclass(value) and type(value) is OBJECTS.get(type(value).__name__):
        return _encoded_piece(value)
    raise TypeError(
        f"{name}={clipped(value)} cannot be saved: a model file holds no "
        f"{type(value).__name__}, only what this package knows; use pickle for such a model."
    )


def _encoded_piece(piece: Any) -> Any:
    if isinstance(piece, SVI):
        if callable(piece.learning_rate):
            raise TypeError(
                "a model whose SVI has a function as learning_rate cannot be saved; set "
                "model.inference = 'svi' first, nothing fitted depends on it."
            )
        piece = replace(piece, start=None)  # where a fit went on from is not a setting
    held = {name: getattr(piece, name) for name in _kept(type(piece))}
    return {
        "object": type(piece).__name__,
        "fields": {name: _encoded(name, value) for name, value in held.items()},
    }


def _kept(kind: Any) -> dict[str, Any]:
    """Fields of a piece that files hold, and their types; devices are the machine's."""
    return {field.name: field.type for field in fields(kind) if field.name != "n_devices"}


def _encoded_state(value: Any) -> Any:
    """A Mersenne twister; no other generator, and not NumPy's own, which no file can restore."""
    if not isinstance(value, np.random.RandomState):
        return None
    state: Any = value.get_state(legacy=False)
    if state["bit_generator"] != "MT19937":
        return None
    held = {
        "key": state["state"]["key"].tolist(),
        "position": int(state["state"]["pos"]),
        "has_gauss": int(state["has_gauss"]),
        "gauss": float(state["gauss"]),
    }
    return {"random_state": held}


def decoded(value: Any, version: int) -> Any:
    """The way back; version 1 had no tuples and took lists for them."""
    if version == 1:
        return _decoded_1(value)
    if isinstance(value, list):
        return [decoded(item, version) for item in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"object", "fields"}:
        return _decoded_piece(value, version)
    if len(value) != 1:
        raise ValueError(f"a setting has the unknown form {clipped(value)}")
    ((form, held),) = value.items()
    return _decoded_form(form, held, version)


def _decoded_form(form: str, held: Any, version: int) -> Any:
    if form == "tuple" and isinstance(held, list):
        return tuple(decoded(item, version) for item in held)
    if form == "dict" and isinstance(held, list):
        pairs = [(decoded(key, version), decoded(item, version)) for key, item in held]
        if len(dict(pairs)) == len(pairs):
            return dict(pairs)
    if form == "float" and held in UNBOUNDED:
        return float(held)
    if form == "random_state":
        return _decoded_state(Facts("random state", held))
    raise ValueError(f"a setting has the unknown form {clipped({form: held})}")


def _decoded_state(facts: Facts) -> np.random.RandomState:
    key, position = facts.take("key"), facts.whole("position")
    has_gauss, gauss = facts.whole("has_gauss"), facts.number("gauss")
    facts.finish()
    words = isinstance(key, list) and len(key) == 624 and all(type(k) is int for k in key)
    if not words or position > 624 or has_gauss > 1 or not all(0 <= k < 2**32 for k in key):
        raise ValueError("its random state is none of a Mersenne twister")
    state = np.random.RandomState()
    state.set_state(("MT19937", np.array(key, dtype=np.uint32), position, has_gauss, gauss))
    return state


def _decoded_piece(value: dict[str, Any], version: int) -> Any:
    kind, held = value["object"], value["fields"]
    if not isinstance(kind, str) or kind not in OBJECTS:
        raise ValueError(f"a setting is the unknown object {clipped(kind)}")
    known = _kept(OBJECTS[kind])
    if not isinstance(held, dict) or set(held) != set(known):
        raise ValueError(f"{kind} has other fields than {sorted(known)}")
    found = {name: decoded(item, version) for name, item in held.items()}
    refuse_odd_truths(found, known)
    if found.get("start") is not None:
        raise ValueError(f"{kind} has the field start, which no file holds")
    return OBJECTS[kind](**found)


def _decoded_1(value: Any) -> Any:
    if isinstance(value, dict):
        return OBJECTS[value["object"]](**value["fields"])
    return tuple(value) if isinstance(value, list) else value


def refuse_odd_truths(values: dict[str, Any], kinds: Mapping[str, Any]) -> None:
    """True and false, which Python takes for numbers, belong to fields of their own kind."""
    for name, value in values.items():
        if isinstance(value, bool) != (kinds[name] in (bool, "bool")):
            raise ValueError(f"{name}={clipped(value)} is of another type than it must be")
