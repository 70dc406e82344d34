"""Equal to another leaf: of the same tree, of another checkpoint, or to what it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.check import Judged
from surgery_cli.draft.expression import LeafRef, Stored
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.draft.seen import Differing, Seen
from surgery_cli.draft.source_leaves import counterpart, split_entry
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.follow.states import States
from surgery_cli.rules.contract import Named, Rule, refuse_false
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.tree.targets import Target, check_targets
from surgery_cli.words.lists import quoted


class Equality(Rule, frozen=True):
    """Bit for bit in shape, dtype and values; NaN equals NaN. Subclasses say what with."""

    sees: ClassVar[type[Seen]] = Differing
    judges_empty: ClassVar[bool] = True

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        other = self.other(path, named)
        if other is None:
            return "the source has no such leaf"
        kinds = [_comparable(one.spec) for one in (output, other)]
        there = other.spec.type_text
        return "" if kinds[0] == kinds[1] else f"it is {output.spec.type_text}, the other {there}"

    def is_told(self, path: LeafPath, output: Output, named: Named) -> bool:
        other = self.other(path, named)
        is_same = other is not None and _is_same(output, other)
        return is_same or output.spec.kind is LeafKind.EMPTY

    def judge(self, seen: Differing, spec: LeafSpec) -> Judged:
        size = spec.size if spec.has_array else 1
        count = seen.values
        return Judged(
            not count, f"`{count:,} of {size:,}` values differ" if count else "it is equal"
        )


class EqualTo(Equality, frozen=True):
    """Equal to a leaf of the same tree."""

    equal_to: Annotated[
        str,
        Meta(
            description=r"A path in the same tree that each leaf equals: `params/emb`; `\1` for the first wildcard."
        ),
    ]

    @property
    def text(self) -> str:
        return f"equal to {self.equal_to}"

    def check_values(self, patterns: Sequence[str]) -> None:
        check_targets(dict.fromkeys(patterns, self.equal_to), "equal_to")

    def breach_of_selection(self, named: Named) -> str:
        never_fails = named.leaves and all(
            self._place(path, named) == path for path in named.leaves
        )
        return "each leaf would be compared with itself" if never_fails else ""

    def _place(self, path: LeafPath, named: Named) -> LeafPath:
        """The leaf that one is compared with, whether there is one or not."""
        if not named.leaves.named:
            return LeafPath()
        pattern, match = named.leaves.match(path)
        return Target(self.equal_to, "equal_to").place(match, pattern, named.places) / match.tail

    def other(self, path: LeafPath, named: Named) -> Output | None:
        leaves, place = named.draft.leaves, self._place(path, named)
        if place not in leaves:
            near = nearest(str(place), map(str, named.draft.leaves))
            raise PlanError(
                f"there is no leaf '{place}'",
                why=f"'{path}' is compared with it",
                fix=f"the nearest paths are {quoted(near, 3)}" if near else "",
                field="equal_to",
            )
        return leaves[place]


class EqualIn(Equality, frozen=True):
    """Equal to a leaf of another checkpoint; without ``from``, whose paths are others, every leaf of it is here."""

    equal_in: Annotated[
        str,
        Meta(
            description="Another checkpoint (in a plan also a name in its `sources`), in which each leaf is the same;"
            " without `from`, what it has of them is not missing here."
        ),
    ]
    from_: Annotated[
        str, Meta(description="Path there, the same one if left out; `\\1` for the first wildcard.")
    ] = msgspec.field(name="from", default="")

    path_fields: ClassVar[tuple[str, ...]] = ("equal_in",)

    @property
    def text(self) -> str:
        return f"equal in {self.equal_in}" + (f" from {self.from_}" if self.from_ else "")

    def held_against(self, draft: Draft, scene: States) -> TreeSpec | None:
        file, entry = split_entry(self.equal_in)
        return None if entry or self.from_ else scene.open(file)[1].tree

    def absent(self, named: Named) -> Iterator[tuple[LeafPath, str]]:
        tree = self.held_against(named.draft, named.scene)
        if tree is not None:
            yield from named.absent(tree)

    def other(self, path: LeafPath, named: Named) -> Output | None:
        file, entry = split_entry(self.equal_in)
        name, source = named.scene.open(file)
        start = entry or self.from_
        found = path if path in source.tree and not start else None
        if found is None:
            found = counterpart(path, start, file, source, named.leaves, field="equal_in")
        return Output.of(LeafRef(name, found), source.tree[found])


class Unchanged(Equality, frozen=True):
    """What it was in the source, of which nothing is gone."""

    unchanged: Annotated[
        bool,
        Meta(
            description="Each leaf is what it was in the source, wherever it stood, and none that stood there is gone."
        ),
    ]

    def __post_init__(self) -> None:
        refuse_false(self)

    @property
    def text(self) -> str:
        return "unchanged"

    def held_against(self, draft: Draft, scene: States) -> TreeSpec | None:
        return draft.source_tree

    def absent(self, named: Named) -> Iterator[tuple[LeafPath, str]]:
        draft = named.draft
        homes = (output.home for output in draft.leaves.values())
        here = {home.path for home in homes if home is not None and home.source == SOURCE}
        for path in named.selected_in(draft.source_tree):
            if path in here:
                continue
            was = draft.source_tree[path].type_text
            if path not in draft.leaves:
                yield path, f"it is gone, and was {was}"
            elif (home := draft.leaves[path].home) is not None and home.source == SOURCE:
                yield path, f"it is gone, and was {was}; what stands there came from '{home.path}'"

    def other(self, path: LeafPath, named: Named) -> Output | None:
        draft = named.draft
        home = draft.leaves[path].home
        was = home.path if home is not None and home.source == SOURCE else path
        if was not in draft.source_tree:
            return None
        return Output.of(LeafRef(SOURCE, was), draft.source_tree[was])


def _is_same(one: Output, other: Output) -> bool:
    """True if both are the same stored values."""
    a, b = one.recipe, other.recipe
    return a is b or (isinstance(a, Stored) and isinstance(b, Stored) and a.ref == b.ref)


def _comparable(spec: LeafSpec) -> tuple[object, ...]:
    """What must agree before values are looked at; arrays of JAX and NumPy are alike."""
    return spec.has_array, spec.shape, spec.dtype, spec.empty, spec.key_impl
