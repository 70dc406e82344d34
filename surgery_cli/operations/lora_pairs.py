"""Which A and B belong to which kernel, and which are left over."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from surgery_cli.draft.source_leaves import Leaves, NoSuchLeaf, counterpart
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.operations.adapter_config import AdapterConfig
from surgery_cli.tree.paths import LeafPath, PathPattern, Selection
from surgery_cli.tree.specs import LeafKind
from surgery_cli.tree.targets import REFERENCE
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted
from surgery_cli.words.series import folded


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


def left_over(
    places: Sequence[str],
    leaves: Leaves,
    taken: Collection[LeafPath],
    text: str,
) -> Iterator[Problem]:
    """Leaves that stand where ``places`` say, and belong to no kernel that is named."""
    texts = {
        path: path.text for path, spec in leaves.tree.items() if spec.kind is not LeafKind.EMPTY
    }
    for field, place in zip("ab", places, strict=False):
        for path in PathPattern(_any(place)).named(texts):
            if path not in taken:
                yield Problem(
                    f"'{path}' of '{text}' belongs to no kernel that is named",
                    why=worded("it stands where {} says", FieldName(field)),
                    fix=worded("name its kernel in {at}, too, or leave that out with {except}"),
                    path=str(path),
                    field=field,
                )


def others_notes(pairs: Iterable[Pair], leaves: Leaves, text: str) -> Iterator[Consequence]:
    """What an edit leaves out of an adapter, none of whose leaves it names is left over."""
    taken = {leaf for pair in pairs for leaf in pair.leaves()}
    rest = [str(leaf) for leaf in leaves.tree if leaf not in taken]
    if rest:
        count = counted(len(rest), "tensor")
        shown = quoted(folded(rest), 3)
        yield Consequence(
            DocsPage.MERGE_LORA, f"{count} of '{text}' belong to other kernels than these: {shown}"
        )


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


def _any(place: str) -> str:
    """The pattern of all that a place with references may be."""
    keys = []
    for key in place.strip("/").split("/"):
        if REFERENCE.fullmatch(key):
            keys.append("**")
            continue
        parts = REFERENCE.split(key)[:: REFERENCE.groups + 1]
        keys.append(
            "*".join("".join(f"[{c}]" if c in "*?[{}" else c for c in part) for part in parts)
        )
    return "/".join(keys)
