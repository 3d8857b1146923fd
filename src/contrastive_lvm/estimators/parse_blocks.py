"""The model that named blocks describe, once the sets of rows are known."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from contrastive_lvm.designs import Block, all_patterns
from contrastive_lvm.estimators import parse_params
from contrastive_lvm.estimators.covariates import check_effects
from contrastive_lvm.estimators.frames import first_few
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.model import LoadingBlock, Model

if TYPE_CHECKING:
    from contrastive_lvm.estimators.multi_set_lvm import MultiSetLVM

RESERVED = "noise"  # the name of the unexplained part in tables of variance


def resolve_blocks(blocks: object, sets: Sequence[str]) -> dict[str, Block]:
    """Return blocks with the sets that each of them has, in the order of the model's sets."""
    if isinstance(blocks, str) and blocks == "auto":
        return all_patterns(sets)
    if not isinstance(blocks, Mapping) or not blocks:
        reason = (
            "must name blocks, such as {'shared': 10, 'a': Block(2, sets=['a'])}, or be 'auto'."
        )
        raise InvalidParameterError("blocks", blocks, reason)
    found = {name: _resolved(name, given, sets) for name, given in blocks.items()}
    _refuse_twins(found)
    return found


def refuse_idle_sets(blocks: Mapping[str, Block], sets: Sequence[str]) -> None:
    """Refuse blocks that leave a set without any dimension."""
    for name in sets:
        if not any(name in (b.sets or ()) and b.n_components != 0 for b in blocks.values()):
            reason = f"have no dimension for set {name!r}; add a block for it, or drop its rows."
            raise InvalidParameterError("blocks", list(blocks), reason)


def _resolved(name: object, given: object, sets: Sequence[str]) -> Block:
    if not isinstance(name, str) or not name or name == RESERVED:
        reason = f"cannot have a block named {name!r}; use a word other than {RESERVED!r}."
        raise InvalidParameterError("blocks", name, reason)
    try:
        block = given if isinstance(given, Block) else Block(given)  # type: ignore[arg-type]
    except InvalidParameterError as error:
        reason = "must be a number of dimensions, 'auto', or a Block."
        raise InvalidParameterError(f"blocks[{name!r}]", given, reason) from error
    unknown = set(block.sets or ()) - set(sets)
    if unknown:
        reason = f"names sets without rows, {first_few(unknown)}; the rows are of {list(sets)}."
        raise InvalidParameterError(f"blocks[{name!r}]", block, reason)
    active = sets if block.sets is None else [s for s in sets if s in block.sets]
    return Block(block.n_components, tuple(active), block.prior)


def _refuse_twins(blocks: dict[str, Block]) -> None:
    seen: dict[object, str] = {}
    for name, block in blocks.items():
        if block.sets in seen:
            reason = (
                f"is active in the same sets as blocks[{seen[block.sets]!r}], so no data can "
                "distinguish them; make them one block."
            )
            raise InvalidParameterError(f"blocks[{name!r}]", block.n_components, reason)
        seen[block.sets] = name


def model_of_blocks(
    estimator: "MultiSetLVM", blocks: Mapping[str, Block], n_rows: Mapping[str, int]
) -> Model:
    """Return the model of resolved blocks; blocks of automatic size have none yet."""
    n_features, names = estimator.n_features_in_, getattr(estimator, "feature_names_in_", None)
    names = None if names is None else list(names)
    likelihood = parse_params.likelihood(estimator.likelihood)._bind(n_features, names)
    made = []
    given = {f"prior of blocks[{name!r}]": block.prior for name, block in blocks.items()}
    priors = parse_params.priors(given, likelihood, estimator.inference)
    for (name, block), prior in zip(blocks.items(), priors, strict=True):
        automatic, sets = block.n_components == "auto", tuple(block.sets or ())
        size = 0 if automatic else int(block.n_components)
        made.append(LoadingBlock(name, size, sets, prior._bind(n_features, names), automatic))
    known = () if estimator._encoding is None else estimator._encoding.columns
    own = check_effects(estimator.covariate_effects)
    return Model(tuple(n_rows), tuple(made), likelihood, known, own)


def refuse_too_many_columns(model: Model, n_features: int, n_rows: Mapping[str, int]) -> None:
    """Refuse blocks that leave nothing for the noise of a set, or that have too few rows."""
    for name in model.sets:
        columns = sum(block.n_components for block in model.blocks if name in block.sets)
        if columns >= n_features:
            reason = (
                f"give set {name!r} {columns} dimensions for {n_features} feature(s), so nothing "
                "is left for the noise; use fewer dimensions."
            )
            raise InvalidParameterError("blocks", [b.name for b in model.blocks], reason)
    if model.drops_columns:
        return
    for block in model.blocks:
        within = [b for b in model.blocks if set(b.sets) <= set(block.sets)]
        columns = sum(b.n_components for b in within)
        rows = sum(n_rows[name] - 1 for name in block.sets) - model.n_effects
        if columns >= rows:
            reason = (
                f"is too large: sets {list(block.sets)} alone have {columns} dimensions, which "
                f"must be fewer than {rows}, the number of their rows minus one for each mean"
                f"{' and effect' * bool(model.n_effects)}; use fewer dimensions."
            )
            raise InvalidParameterError(f"blocks[{block.name!r}]", block.n_components, reason)
