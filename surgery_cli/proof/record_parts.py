"""What the parts of a ``surgery.json`` say: of changed leaves, of LoRAs in them, of rules, of runs, of large files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli.draft.check import Apart
from surgery_cli.errors import Problem


class HeldLora(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A LoRA that runs on record have merged into a leaf.

    ``adapter`` is the fingerprint of where it stands, empty if that is the checkpoint itself; ``name`` what the plan
    called that. ``a``, ``alpha``: where its A stands, and its alpha if that is a leaf.
    """

    adapter: str = ""
    name: str = ""
    a: str = ""
    alpha: str = ""
    by: tuple[float | None, ...] = ()
    """By what A·B was multiplied, each time that it was merged; none if it was taken out again, and null where the leaf
    was computed with since, so that nothing says by how much it is in it."""


class ChangedLeaf(
    msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, rename={"from_": "from"}
):
    """An output leaf that is not an untouched copy. ``before`` and ``after`` are like ``float32[3,4]``.

    ``keeps_start``: of a slot, that its edits left in it what was left of its start. ``chunks_by_reference``: of a leaf
    whose elements moved, how many of its stored chunks are the source's own. ``reordered``: elements of an axis stand
    in another order than before, which no shape shows.
    """

    path: str
    from_: str | None
    operations: list[str]
    before: str | None
    after: str
    policy: str | None = None
    twin_of: str | None = None
    moved: bool = False
    keeps_start: bool = False
    chunks_by_reference: int = 0
    reordered: bool = False
    loras: list[HeldLora] | UnsetType = UNSET
    digest: str | None = None


class Assumed(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """What a run takes something for: not proved and not said, but not ruled out either."""

    node: str
    """A state of the optimizer by its path, an item whose tree names alone tell, or a root of which a step is taken."""
    taken_for: str
    unless: list[str] = []
    """What else it may be: slots, or the tree, would then be wrong, or another step would be meant."""
    settled_by: str = ""
    sentence: str = ""


class CheckedRule(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A rule that an edit of the plan (counted from 1), or its policy (0), states, and how it was judged."""

    edit: int
    rule: str
    """E.g. ``norm ..100``."""
    id: str = ""
    """Of a rule of a policy, as ``severity`` and ``message``."""
    severity: str = ""
    message: str = ""
    leaves: int
    by_values: int = 0
    """Of how many leaves values were looked at: metadata tell of the others."""
    holds: bool | None = True
    """None in a preview where values tell."""
    least: int | float | None = None
    most: int | float | None = None
    """Between which numbers the leaves lie, where the rule measures one."""
    of_each: dict[str, float] = {}
    """The number of each leaf, of what an edit loses there."""
    breaches: list[Problem] = []
    """What breaks a rule that only warns: no result comes about of one that does not."""
    apart: list[Apart] = []
    """Of which leaves it says nothing, and neither holds nor is broken there."""


class Run(msgspec.Struct, frozen=True):
    """Of a run on record, what later ones ask: which leaves it changed and removed by which plan, and its donors."""

    leaves: list[ChangedLeaf] = []
    removed: list[str] = []
    donors: dict[str, str] = {}
    plan: dict[str, Any] = {}
    inverse: dict[str, Any] | UnsetType = UNSET
    edited_trees: list[str] | UnsetType = UNSET
    source_fingerprint: str = ""


class Verified(msgspec.Struct, kw_only=True, frozen=True):
    """How many leaves of a result were held against the draft, and how; nothing in a record without a run."""

    structure: int | UnsetType = UNSET
    read_back: int | UnsetType = UNSET
    sources_checked: int | UnsetType = UNSET
    probe: str | UnsetType = UNSET


class FileBlocks(msgspec.Struct, frozen=True):
    """The pieces of a file: ``bytes`` in all, ``piece`` in each but the last, and their SHA-256, as of a leaf."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]
    piece: Annotated[int, msgspec.Meta(ge=1)]
    digests: str


def entries_of(runs: Iterable[Run], leaves: Iterable[str]) -> Iterator[tuple[str, ChangedLeaf]]:
    """What runs have on record of leaves, latest first, under the names that these had then; of none from before it was
    made anew.
    """
    names = {leaf: leaf for leaf in leaves}
    for run in runs:
        changed = {entry.path: entry for entry in run.leaves}
        for leaf, name in list(names.items()):
            if (entry := changed.get(name)) is None:
                continue
            yield leaf, entry
            if entry.from_ is None:
                del names[leaf]
            else:
                names[leaf] = entry.from_
