"""Blocks of latent dimensions, the sets that have them, and common designs of such blocks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from contrastive_lvm.checks import check_integer
from contrastive_lvm.exceptions import InvalidParameterError
from contrastive_lvm.priors.base import AnyPrior

__all__ = ["Block", "all_pairs", "all_patterns", "each_its_own", "one_background", "one_target"]

MOST_PATTERNS_OF = 8  # sets; 255 patterns


@dataclass(frozen=True)
class Block:
    """Latent dimensions that some sets of rows have and others lack.

    Parameters
    ----------
    n_components : int or "auto"
        Number of dimensions; `"auto"` lets the data decide, which may be none.
    sets : sequence of str, optional
        Names of the sets that have them; all sets when left out.
    prior : None, "ard", "group_lasso", "horseshoe", or an object
        Prior on the loadings; None is maximum likelihood.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> clvm.Block(2, sets=["a", "b"])
    Block(n_components=2, sets=('a', 'b'), prior=None)
    """

    n_components: int | str
    sets: Sequence[str] | None = None
    prior: AnyPrior | str | None = None

    def __post_init__(self) -> None:
        if self.n_components != "auto":
            check_integer("n_components", self.n_components, 0)
        if self.sets is None:
            return
        if isinstance(self.sets, str) or not isinstance(self.sets, Iterable):
            raise InvalidParameterError("sets", self.sets, "must list names, such as ['a', 'b'].")
        names = tuple(map(str, self.sets))
        if len(set(names)) < len(names):
            raise InvalidParameterError("sets", self.sets, "names a set twice; name it once.")
        if not names:
            reason = "makes a block that is active nowhere; name a set, or leave the block out."
            raise InvalidParameterError("sets", self.sets, reason)
        object.__setattr__(self, "sets", names)


Size: TypeAlias = int | str
Blocks: TypeAlias = Mapping[str, "Block | int | str"]


def one_background(
    background: str,
    targets: Sequence[str],
    *,
    n_shared: Size = 10,
    n_targets: Size = 0,
    n_each: Size = 2,
) -> dict[str, Block]:
    """Return blocks for one background and several targets.

    `n_shared` dimensions are those of all sets, `n_targets` those of all targets and not of the
    background, and each target has `n_each` of its own.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> blocks = clvm.designs.one_background("control", ["a", "b"], n_targets=1)
    >>> {name: block.sets for name, block in blocks.items()}
    {'shared': ('control', 'a', 'b'), 'targets': ('a', 'b'), 'a': ('a',), 'b': ('b',)}
    """
    names = _names("targets", targets)
    found = {"shared": Block(n_shared, (background, *names))}
    if len(names) > 1 and n_targets != 0:
        found["targets"] = Block(n_targets, names)
    return _refusing_clashes(found | {name: Block(n_each, (name,)) for name in names}, found)


def one_target(
    target: str,
    backgrounds: Sequence[str],
    *,
    n_shared: Size = 10,
    n_target: Size = 2,
    n_each: Size = 0,
) -> dict[str, Block]:
    """Return blocks for one target and several backgrounds.

    The target shares `n_shared` dimensions with all backgrounds and `n_each` with each of them
    alone; `n_target` are its own.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> list(clvm.designs.one_target("ill", ["young", "old"], n_each=3))
    ['shared', 'ill+young', 'ill+old', 'ill']
    """
    names = _names("backgrounds", backgrounds)
    found = {"shared": Block(n_shared, (target, *names))}
    if len(names) > 1 and n_each != 0:
        found |= {f"{target}+{name}": Block(n_each, (target, name)) for name in names}
    return _refusing_clashes(found | {target: Block(n_target, (target,))}, found)


def each_its_own(sets: Sequence[str], *, n_shared: Size = 10, n_each: Size = 2) -> dict[str, Block]:
    """Return a block for all sets and one for each: multi-study factor analysis.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> list(clvm.designs.each_its_own(["study 1", "study 2"], n_shared=4, n_each=1))
    ['shared', 'study 1', 'study 2']
    """
    names = _names("sets", sets)
    found = {"shared": Block(n_shared, names)}
    return _refusing_clashes(found | {name: Block(n_each, (name,)) for name in names}, found)


def all_pairs(
    sets: Sequence[str], *, n_shared: Size = 10, n_pair: Size = 1, n_each: Size = 2
) -> dict[str, Block]:
    """Return a block for all sets, one for every two of them, and one for each.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> list(clvm.designs.all_pairs(["a", "b", "c"]))
    ['shared', 'a+b', 'a+c', 'b+c', 'a', 'b', 'c']
    """
    names = _names("sets", sets)
    pairs = combinations(names, 2) if len(names) > 2 else ()
    found = {"shared": Block(n_shared, names)}
    found |= {"+".join(pair): Block(n_pair, pair) for pair in pairs}
    return _refusing_clashes(found | {name: Block(n_each, (name,)) for name in names}, found)


def all_patterns(sets: Sequence[str], n_components: Size = "auto") -> dict[str, Block]:
    """Return a block for every nonempty choice of sets, the largest choices first.

    This is what `blocks="auto"` stands for.

    Examples
    --------
    >>> import contrastive_lvm as clvm
    >>> list(clvm.designs.all_patterns(["a", "b", "c"]))
    ['shared', 'a+b', 'a+c', 'b+c', 'a', 'b', 'c']
    """
    names = _names("sets", sets)
    if len(names) > MOST_PATTERNS_OF:
        reason = (
            f"are {len(names)} sets with {2 ** len(names) - 1:,} patterns, but at most "
            f"{MOST_PATTERNS_OF} sets can be searched; name the blocks to try, each of size 'auto'."
        )
        raise InvalidParameterError("sets", list(names), reason)
    found = {"shared": Block(n_components, names)}
    for size in range(len(names) - 1, 0, -1):
        for some in combinations(names, size):
            found["+".join(some)] = Block(n_components, some)
    return _refusing_clashes(found, found)


def _names(argument: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not len(given):
        raise InvalidParameterError(argument, given, "must list at least one name of a set.")
    return tuple(map(str, given))


def _refusing_clashes(blocks: dict[str, Block], named: Mapping[str, Block]) -> dict[str, Block]:
    """Refuse sets whose names are those of a block for others."""
    for name in {str(s) for block in blocks.values() for s in block.sets or ()} & set(named):
        if blocks[name].sets != (name,):
            reason = "is also the name of a block that several sets share; give the set another."
            raise InvalidParameterError("sets", name, reason)
    return blocks
