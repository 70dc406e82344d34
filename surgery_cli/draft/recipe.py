"""The draft: for every output leaf, the recipe that makes it. A value; nothing in it has been read yet."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from surgery_cli.draft.assumptions import Assumption
from surgery_cli.draft.check import Check
from surgery_cli.draft.digest import digest_named
from surgery_cli.draft.effect import Effect
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored, with_spec
from surgery_cli.draft.factor import Factor
from surgery_cli.draft.kernel import Nothing
from surgery_cli.draft.removed import removed_leaves
from surgery_cli.draft.slots import Clock, Slot
from surgery_cli.draft.taking import Taking
from surgery_cli.tree.dtypes import is_complex, is_floating
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.notes import Note

SOURCE = ""
"""The name of the checkpoint that is being edited, among the sources of a draft."""


class Edited(msgspec.Struct, frozen=True, gc=False):
    """One edit of a leaf: the word for it in documents, and what it did.

    ``is_named``: a pattern of the edit names the leaf; else it followed an edit of its param. ``makes``: what the leaf
    is since then to a product.
    """

    name: str
    effect: Effect
    is_named: bool = True
    makes: Factor | None = None


class Output(msgspec.Struct, frozen=True, gc=False):
    """An output leaf: what its values are made of, and which stored leaf it continues.

    ``home`` is that leaf, where it stood; None for a leaf without any. What becomes of slots and clocks goes by it, and
    it is what documents say that the leaf comes from, though its values may come from elsewhere (a fill, a donor's).
    ``policy`` says how a twin in the optimizer state came to its recipe, ``edits`` what was done, in order. ``others``
    are further leaves that it continues, where several were joined to one. ``is_resharded``: its chunks and sharding
    are what its spec says, whatever they were.
    """

    recipe: Recipe
    home: LeafRef | None
    policy: str = ""
    edits: tuple[Edited, ...] = ()
    others: tuple[LeafRef, ...] = ()
    is_resharded: bool = False

    @classmethod
    def of(cls, ref: LeafRef, spec: LeafSpec, policy: str = "") -> Output:
        """A stored leaf as it is."""
        return cls(Stored(ref, spec), ref, policy)

    @classmethod
    def empty(cls, spec: LeafSpec) -> Output:
        """A container without leaves, made of nothing."""
        return cls(Made(Nothing(), (), spec, LeafPath()), None)

    @property
    def spec(self) -> LeafSpec:
        """What the leaf will be."""
        return self.recipe.spec

    @property
    def homes(self) -> tuple[LeafRef, ...]:
        """All stored leaves that it continues."""
        return () if self.home is None else (self.home, *self.others)

    @property
    def is_by_reference(self) -> bool:
        """True if the stored bytes of its home can be taken as they are."""
        return isinstance(self.recipe, Stored) and self.recipe.ref == self.home

    def then(self, recipe: Recipe, *edits: Edited, policy: str = "") -> Output:
        """This leaf after edits, which make it ``recipe``: where that is a stored leaf again, it continues that one."""
        policy, edits = policy or self.policy, (*self.edits, *edits)
        if isinstance(recipe, Stored):
            return Output(recipe, recipe.ref, policy, edits)
        return Output(recipe, self.home, policy, edits, self.others)

    def with_spec(self, spec: LeafSpec) -> Output:
        """The same values as another kind of leaf."""
        return msgspec.structs.replace(self, recipe=with_spec(self.recipe, spec))


class EditOutcome(msgspec.Struct, frozen=True):
    """What one edit did to the draft: how many leaves it named, what became of twins, by policy; bytes of values.

    ``assumed`` is what twins were taken for that followed without proof, by the node of their state. ``is_idle``: all
    leaves are what they were.
    """

    leaves: int
    twins: dict[str, int] = {}
    bytes: int = 0
    assumed: tuple[tuple[LeafPath, Assumption], ...] = ()
    is_idle: bool = False


class DraftItems(msgspec.Struct, frozen=True):
    """The trees of a step with items; without ``names`` the checkpoint is one tree that has no name.

    ``is_prefixed``: every path begins with the name of its item. ``front`` is the item whose name the paths of the
    source lack: a second item put it there. ``made`` are items that the source does not have, each with the one in
    whose layout it is written. ``taken`` are the names of everything in the step. ``is_partial``: some trees were not
    chosen, and stand outside of the draft.
    """

    names: tuple[str, ...] = ()
    is_prefixed: bool = False
    front: str = ""
    made: dict[str, str] = {}
    taken: frozenset[str] = frozenset()
    is_partial: bool = False
    keeps_kinds: bool = True
    """False where the format does not tell arrays of JAX from NumPy's."""

    @property
    def first_keys(self) -> tuple[str, ...]:
        """What the first key of a path may be; empty if it may be anything."""
        return (*self.names, *self.made) if self.is_prefixed else ()


class Draft(msgspec.Struct, frozen=True, dict=True):
    """All output leaves with their recipes, in stored order.

    ``fingerprints`` holds one for every source that was opened, by name. ``slots`` are the twins of params in the
    optimizer state, by the path at which they stand now; ``clocks`` its counters, by the path in the source, like
    ``running``, the initial values of numbers that a state keeps with its slots, and ``nonnegative``, the numbers that
    are never below 0. ``notes`` are sentences for the preview, ``checks`` what must hold, ``takings`` see `Taking`.
    """

    leaves: dict[LeafPath, Output]
    source_tree: TreeSpec
    fingerprints: dict[str, str]
    slots: dict[LeafPath, Slot] = {}
    clocks: dict[LeafPath, Clock] = {}
    running: dict[LeafPath, float] = {}
    nonnegative: frozenset[LeafPath] = frozenset()
    notes: tuple[Note, ...] = ()
    outcomes: tuple[EditOutcome, ...] = ()
    checks: tuple[Check, ...] = ()
    items: DraftItems = DraftItems()
    takings: tuple[Taking, ...] = ()

    @classmethod
    def of(
        cls,
        tree: TreeSpec,
        fingerprint: str,
        slots: Mapping[LeafPath, Slot] | None = None,
        clocks: Mapping[LeafPath, Clock] | None = None,
    ) -> Draft:
        """The draft that changes nothing."""
        leaves = {path: Output.of(LeafRef(SOURCE, path), spec) for path, spec in tree.items()}
        return cls(leaves, tree, {SOURCE: fingerprint}, dict(slots or {}), dict(clocks or {}))

    def replaced(self, **changes: Any) -> Draft:
        """The same draft with other fields; what was derived from unchanged ones stays.

        Printing 100,000 paths and sorting their slots takes longer than most edits.
        """
        draft: Draft = msgspec.structs.replace(self, **changes)
        if "texts" in self.__dict__ and list(draft.leaves) == list(self.leaves):
            draft.__dict__["texts"] = self.texts
        for derived, fields in _DERIVED_FROM.items():
            is_same = all(getattr(draft, name) is getattr(self, name) for name in fields)
            if is_same and derived in self.__dict__:
                draft.__dict__[derived] = self.__dict__[derived]
        return draft

    def with_leaves(self, changed: Mapping[LeafPath, Output]) -> Draft:
        """The same draft with some recipes replaced or added, order kept."""
        return self.replaced(leaves={**self.leaves, **changed})

    def behind(self, item: str) -> Draft:
        """The same draft with the name of its only item in front of every path."""
        front = LeafPath((item,))
        slots = [
            msgspec.structs.replace(
                slot,
                path=front / slot.path,
                param=front / slot.param,
                node=front / slot.node,
                root=front / slot.root,
                clocks=tuple(front / clock for clock in slot.clocks),
            )
            for slot in self.slots.values()
        ]
        return self.replaced(
            leaves={front / path: recipe for path, recipe in self.leaves.items()},
            slots={slot.path: slot for slot in slots},
            items=msgspec.structs.replace(self.items, is_prefixed=True, front=item),
        )

    def standing(self, path: LeafPath) -> LeafPath:
        """Where a leaf of the source stands if no edit moves it."""
        return LeafPath((self.items.front, *path)) if self.items.front else path

    def noting(self, *notes: Note) -> Draft:
        """The same draft with further notes, none of them twice."""
        new = tuple(note for note in notes if note not in self.notes)
        return self.replaced(notes=self.notes + new) if new else self

    @cached_property
    def texts(self) -> dict[LeafPath, str]:
        """The printed path of every output leaf."""
        if list(self.leaves) == list(self.source_tree):
            return self.source_tree.texts
        return {path: path.text for path in self.leaves}

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

    def driven_by(self, clock: LeafPath) -> list[Slot]:
        """The slots that depend on a clock."""
        return [slot for slot in self.slots.values() if clock in slot.clocks]

    def clock_at(self, path: LeafPath) -> Clock | None:
        """What the leaf at ``path`` counts, wherever it stood in the source; None if it is no clock.

        What a donor gave counts what stood there.
        """
        home = self.leaves[path].home if path in self.leaves else None
        if home is None:
            return None
        return self.clocks.get(home.path if home.source == SOURCE else path)

    def is_untouched(self, path: LeafPath) -> bool:
        """True if the leaf stands where it stood, as it was."""
        output = self.leaves[path]
        home = output.home
        is_kept = output.is_by_reference and not output.is_resharded
        if not is_kept or home is None or home.source != SOURCE:
            return False
        return self.standing(home.path) == path

    @cached_property
    def changed(self) -> list[LeafPath]:
        """Output leaves that are not untouched copies."""
        return [path for path in self.leaves if not self.is_untouched(path)]

    @cached_property
    def removed(self) -> list[LeafPath]:
        """See ``removed_leaves``; an empty container that got leaves is not gone."""
        stands = {path: self.standing(path) for path in self.source_tree}
        homes = {path: output.homes for path, output in self.leaves.items()}
        gone = removed_leaves(stands, homes, self.slots)
        return [p for p in gone if not (self.source_tree[p].empty and stands[p] in self.tree.nodes)]

    @cached_property
    def digest(self) -> str:
        """``sha256:…`` over every recipe and the fingerprints of all sources that are used.

        The first 16 digits depend on the fingerprints and the names of donors alone, so that a changed source can be
        told from a changed plan; see ``DigestPart``.
        """
        return self.digest_as({})

    def digest_as(self, names: Mapping[str, str]) -> str:
        """The digest as it would be with other names of donors, by those that they have."""
        changed = set(self.changed)
        recipes = {p: out.recipe if p in changed else None for p, out in self.leaves.items()}
        return digest_named(recipes, self.fingerprints, SOURCE, names)


_DERIVED_FROM: Final = {
    "tree": ("leaves",),
    "slots_of": ("slots",),
    "changed": ("leaves", "items"),
    "removed": ("leaves", "items", "source_tree", "slots"),
}
"""From which fields of a draft its cached properties follow, but for ``texts`` and the digest."""


def is_numeric(spec: LeafSpec) -> bool:
    """True for leaves that arithmetic may touch: arrays and Python floats of a floating or complex dtype."""
    numeric = is_floating(spec.dtype) or is_complex(spec.dtype)
    return numeric and spec.kind in (LeafKind.ARRAY, LeafKind.NUMPY, LeafKind.SCALAR)
