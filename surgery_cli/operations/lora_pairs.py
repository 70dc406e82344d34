"""Which A and B belong to which kernel, and which are left over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from surgery_cli.draft.source_leaves import Leaves, NoSuchLeaf, counterpart
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.operations.adapter_config import AdapterConfig
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.words.advice import worded


class Donor(NamedTuple):
    """Where the LoRA stands: its name in the draft ('' for the checkpoint that is edited), and what is there."""

    text: str
    name: str
    leaves: Leaves
    config: AdapterConfig | None = None
    slots: frozenset[LeafPath] = frozenset()
    """Of this checkpoint, what mirrors params: it goes with them."""


class Pair(NamedTuple):
    """Where the parts of a LoRA stand; ``alpha`` where it is a leaf."""

    a: LeafPath
    b: LeafPath
    alpha: LeafPath | None = None

    def leaves(self) -> tuple[LeafPath, ...]:
        """Those that there are, in order."""
        return (self.a, self.b) if self.alpha is None else (self.a, self.b, self.alpha)


def pair_of(
    path: LeafPath, places: tuple[str, str, str], text: str, leaves: Leaves, named: Selection
) -> Pair:
    """The LoRA of a kernel; ``places`` say where A, B and alpha stand ('' for no such leaf), ``text`` whose they are.

    Raises:
        NoSuchLeaf: it has none.
        PlanError: a part of it is missing.
    """
    found: dict[str, LeafPath] = {}
    lacking: list[NoSuchLeaf] = []
    for field, place in zip(("a", "b", "alpha"), places, strict=True):
        try:
            if place:
                found[field] = counterpart(path, place, text, leaves, named, "with", field)
        except NoSuchLeaf as error:
            lacking.append(error)
    if lacking and found.keys() & {"a", "b"}:
        raise PlanError.of(problem for error in lacking for problem in error.problems)
    if lacking:  # it has no LoRA at all, which is one thing to say
        raise lacking[0].because(worded("nor has it what {b} says"))
    return Pair(**found)


def refuse_shared(pairs: Mapping[LeafPath, Pair], *, own: bool) -> None:
    """See that no leaf is a part of two LoRAs, or of one twice; nor, in the same tree (``own``), a kernel itself.

    Raises:
        PlanError: one is.
    """
    users: dict[LeafPath, LeafPath] = {}
    problems: list[Problem] = []
    for path, pair in pairs.items():
        for leaf in (pair.a, pair.b):
            other = path if own and leaf in pairs else users.setdefault(leaf, path)
            if leaf == pair.b and pair.a == pair.b:
                why = f"it would be A and B of '{path}'"
            elif own and leaf in pairs:
                why = "it is a kernel that is named itself"
            elif other != path:
                why = f"it would be that of '{other}' and of '{path}'"
            else:
                continue
            problems.append(
                Problem(
                    f"'{leaf}' is no LoRA of one kernel",
                    why=why,
                    fix=worded(
                        "say in {a} and {b} where those of each kernel stand, with `\\1` for its wildcards"
                    ),
                    path=str(leaf),
                    field="a",
                )
            )
    raise_all(problems)


_OTHER_KINDS: Final = re.compile("magnitude|dora|hada_|lokr_|ia3", re.IGNORECASE)


def beyond_pairs(pairs: Iterable[Pair], leaves: Leaves, text: str) -> Iterator[Problem]:
    """What stands beside an A and shows that the adapter is no plain LoRA."""
    nodes = {pair.a.parent for pair in pairs if len(pair.a) > 1}
    for path in leaves.tree if nodes else ():
        if path.parent in nodes and _OTHER_KINDS.search(str(path[-1])):
            yield Problem(
                f"'{path}' of '{text}' is no part of a plain LoRA",
                why="DoRA scales what comes of the sum, and other adapters are no sum of a kernel and A·B",
                fix="merge it with the code that trained it, and take the result from there",
                path=str(path),
                field="a",
            )
