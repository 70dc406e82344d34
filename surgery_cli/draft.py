"""The draft: for every output leaf, the recipe that makes it. A value; nothing in it has been read yet."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

if TYPE_CHECKING:
    from surgery_cli.operations.base import LeafOperation
    from surgery_cli.optimizer.slots import Clock, Slot

SOURCE = ""
"""The name of the checkpoint that is being edited, among the sources of a draft."""


class LeafRef(msgspec.Struct, frozen=True):
    """A stored leaf: the name of a source (``SOURCE``, a donor, an array file) and the path in it."""

    source: str
    path: LeafPath


class Step(msgspec.Struct, frozen=True):
    """One operation on one leaf.

    ``path`` is where the leaf stood when the operation was applied; random values depend on it, so that a later
    rename does not change them. ``before`` is the leaf's spec at that moment, ``after`` the one it leaves.
    ``operands`` are stored arrays that the operation reads beside the leaf, by the operation's own names.
    ``measured_from``: the measurement pass runs over this recipe's values instead of the leaf's own (a twin that
    follows its param's norm).
    """

    operation: LeafOperation
    path: LeafPath
    before: LeafSpec
    after: LeafSpec
    operands: tuple[tuple[str, LeafRef], ...] = ()
    measured_from: LeafRecipe | None = None


class LeafRecipe(msgspec.Struct, frozen=True):
    """What an output leaf is made of: a stored leaf (or nothing), then steps in order.

    ``spec`` is what the leaf will be. ``policy`` says how a twin in the optimizer state came to its steps.
    ``value`` is a new value of a string or empty leaf, or of nothing stored at all.
    """

    origin: LeafRef | None
    spec: LeafSpec
    steps: tuple[Step, ...] = ()
    policy: str = ""

    @property
    def sources(self) -> set[str]:
        """The names of all sources that the values come from."""
        found = {ref.source for step in self.steps for _, ref in step.operands}
        for step in self.steps:
            if step.measured_from is not None:
                found |= step.measured_from.sources
        return found | {self.origin.source} if self.origin else found

    @property
    def is_by_reference(self) -> bool:
        """True if the stored bytes can be taken as they are."""
        return self.origin is not None and not self.steps

    def then(self, step: Step, *, policy: str = "") -> LeafRecipe:
        """This recipe with one more step."""
        return LeafRecipe(self.origin, step.after, (*self.steps, step), policy or self.policy)


class EditOutcome(msgspec.Struct, frozen=True):
    """What one edit did to the draft: how many leaves it named, what became of twins, by policy; bytes of values."""

    leaves: int
    twins: dict[str, int] = {}
    bytes: int = 0


class Draft(msgspec.Struct, frozen=True, dict=True):
    """All output leaves with their recipes, in stored order.

    ``fingerprints`` holds one for every source that was opened, by name. ``slots`` are the twins of params in the
    optimizer state, by the path at which they stand now; ``clocks`` its counters, by the path in the source. ``notes``
    are sentences for the preview.
    """

    leaves: dict[LeafPath, LeafRecipe]
    source_tree: TreeSpec
    fingerprints: dict[str, str]
    slots: dict[LeafPath, Slot] = {}
    clocks: dict[LeafPath, Clock] = {}
    notes: tuple[str, ...] = ()
    outcomes: tuple[EditOutcome, ...] = ()

    @classmethod
    def of(
        cls,
        tree: TreeSpec,
        fingerprint: str,
        slots: Mapping[LeafPath, Slot] | None = None,
        clocks: Mapping[LeafPath, Clock] | None = None,
    ) -> Draft:
        """The draft that changes nothing."""
        leaves = {path: LeafRecipe(LeafRef(SOURCE, path), spec) for path, spec in tree.items()}
        return cls(leaves, tree, {SOURCE: fingerprint}, dict(slots or {}), dict(clocks or {}))

    def replaced(self, **changes: Any) -> Draft:
        """The same draft with other fields; what was derived from unchanged ones stays.

        Printing 100,000 paths and sorting their slots takes longer than most edits.
        """
        draft: Draft = msgspec.structs.replace(self, **changes)
        if "texts" in self.__dict__ and list(draft.leaves) == list(self.leaves):
            draft.__dict__["texts"] = self.texts
        if draft.slots is self.slots and "slots_of" in self.__dict__:
            draft.__dict__["slots_of"] = self.slots_of
        return draft

    def with_leaves(self, changed: Mapping[LeafPath, LeafRecipe]) -> Draft:
        """The same draft with some recipes replaced or added, order kept."""
        return self.replaced(leaves={**self.leaves, **changed})

    def noting(self, *sentences: str) -> Draft:
        """The same draft with further notes, none of them twice."""
        new = tuple(s for s in sentences if s not in self.notes)
        return self.replaced(notes=self.notes + new) if new else self

    @cached_property
    def texts(self) -> dict[LeafPath, str]:
        """The printed path of every output leaf."""
        return {path: str(path) for path in self.leaves}

    @cached_property
    def tree(self) -> TreeSpec:
        """What the new checkpoint must be."""
        return TreeSpec({path: recipe.spec for path, recipe in self.leaves.items()})

    @cached_property
    def slots_of(self) -> dict[LeafPath, list[Slot]]:
        """The slots of every param that has any."""
        found: dict[LeafPath, list[Slot]] = {}
        for slot in self.slots.values():
            found.setdefault(slot.param, []).append(slot)
        return found

    def clock_at(self, path: LeafPath) -> Clock | None:
        """What the leaf at ``path`` counts, wherever it stood in the source; None if it is no clock."""
        origin = self.leaves[path].origin if path in self.leaves else None
        return self.clocks.get(origin.path) if origin and origin.source == SOURCE else None

    def is_untouched(self, path: LeafPath) -> bool:
        """True if the leaf stands where it stood, as it was."""
        recipe = self.leaves[path]
        return recipe.is_by_reference and recipe.origin == LeafRef(SOURCE, path)

    @cached_property
    def changed(self) -> list[LeafPath]:
        """Output leaves that are not untouched copies."""
        return [path for path in self.leaves if not self.is_untouched(path)]

    @cached_property
    def removed(self) -> list[LeafPath]:
        """Source leaves from which no output leaf is made at the same path or elsewhere.

        An empty container that got leaves is none of them.
        """
        used = {
            r.origin.path for r in self.leaves.values() if r.origin and r.origin.source == SOURCE
        }
        gone = [p for p in self.source_tree if p not in used and p not in self.leaves]
        return [p for p in gone if not (self.source_tree[p].empty and p in self.tree.nodes)]

    @cached_property
    def digest(self) -> str:
        """``sha256:…`` over every recipe and the fingerprints of all sources that are used."""
        record = hashlib.sha256()
        used = {SOURCE}
        for path, recipe in self.leaves.items():
            if self.is_untouched(path):
                record.update(_canonical([path, 0]))
                continue
            used |= recipe.sources
            record.update(_canonical([path, recipe]))
        record.update(_canonical({name: self.fingerprints.get(name, "") for name in sorted(used)}))
        return f"sha256:{record.hexdigest()}"


def _canonical(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic") + b"\n"


def stands_for(path: LeafPath, leaves: Iterable[LeafPath]) -> list[LeafPath]:
    """The leaves at or below ``path``."""
    return [leaf for leaf in leaves if leaf.is_below(path)]


def is_numeric(spec: LeafSpec) -> bool:
    """True for leaves that arithmetic may touch: arrays and Python floats of a floating or complex dtype."""
    numeric = spec.dtype.startswith(("float", "bfloat", "complex"))
    return numeric and spec.kind in (LeafKind.ARRAY, LeafKind.NUMPY, LeafKind.SCALAR)
