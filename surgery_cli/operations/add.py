"""Put new leaves at new places."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from surgery_cli.draft.arrangement import rearranged
from surgery_cli.draft.effect import Effect, Sets
from surgery_cli.draft.expression import LeafRef, Made
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.recipe import Draft, Edited, Output, is_numeric
from surgery_cli.draft.settings import check_finite
from surgery_cli.draft.source import Source
from surgery_cli.draft.source_leaves import find_leaf, split_entry
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Scene
from surgery_cli.operations.cast import check_storable
from surgery_cli.operations.drawing import Drawing
from surgery_cli.operations.new_leaves import (
    Here,
    refuse_old_slots,
    with_new_leaves,
)
from surgery_cli.operations.new_places import (
    NAMES_A_PLACE,
    check_place,
    node_of,
    place_of,
)
from surgery_cli.operations.new_shapes import Shape, check_shape, shaped
from surgery_cli.operations.rekey import PlaceOperation
from surgery_cli.operations.replace import Replace
from surgery_cli.tree.number_ranges import read_range
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec
from surgery_cli.words.advice import worded

_NUMBERS: Final = re.compile(r"\{([0-9]+\.\.[0-9]+(?:\.\.[0-9]+)?)\}")


class _New(NamedTuple):
    """A leaf that is to come: what it will be, the leaf of this tree that it is like, and where it stands elsewhere."""

    spec: LeafSpec
    like: LeafPath | None = None
    origin: LeafPath | None = None


class Add(Drawing, PlaceOperation, tag="add", kw_only=True, frozen=True):
    """Put new leaves, or a whole subtree, at places where nothing stands.

    What they are is said by `shape` and `dtype`, or they are `like` others of this tree, or as they stand in a file or
    checkpoint. What they hold is said by an initializer, a number, a file or a checkpoint. Slots of the optimizer are
    what it starts such params with; those of a donor are taken where kind and count agree.
    """

    init: Annotated[
        str, Meta(description="Initializer: `lecun_normal`, `he_uniform`, `zeros`, `normal`, …")
    ] = ""
    like: Annotated[
        str,
        Meta(
            description="A leaf or subtree of this tree, whose shapes, dtypes and slots the new ones have."
        ),
    ] = ""
    with_: Annotated[
        int | float | str | None,
        Meta(
            description="In place of `init`: a number; a file (`w.npy`, `f.npz:ENTRY`); a checkpoint, or a name in"
            " `sources`."
        ),
    ] = msgspec.field(name="with", default=None)
    from_: Annotated[str, Meta(description="Path there, the same one if left out.")] = (
        msgspec.field(name="from", default="")
    )
    shape: Shape = None
    dtype: Annotated[str, Meta(description="The dtype: `float32`, `bfloat16`, …")] = ""
    kind: Annotated[
        Literal["array", "numpy", "scalar"] | None,
        Meta(
            description="How a training script holds them; `array` (of JAX) if nothing says, `numpy` in a tree of such"
            " and of what JAX narrows."
        ),
    ] = None
    cast: Annotated[bool, Meta(description="Convert where the dtype there is another.")] = False

    unused_fields: ClassVar[Mapping[str, str]] = NAMES_A_PLACE
    example: ClassVar[str] = """\
op: add
at: params/Dense_2
like: params/Dense_1
init: normal
"""
    target_fields: ClassVar[tuple[str, ...]] = ("at",)
    path_fields: ClassVar[tuple[str, ...]] = ("with",)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        specs: dict[LeafPath, _New] = {}
        gathering, here = Gathering(), Here(draft)
        for text in [t for pattern in self.patterns for t in _numbered(pattern)]:
            with gathering.catching(field="at"):
                place = place_of(text, draft)
                _refuse_standing(place, draft, specs)
                if self.twins == "carried":
                    _refuse_in_state(place, draft)
                specs |= self._specs(place, here, scene)
        gathering.raise_if_any()
        new: dict[LeafPath, Output] = {}
        for path, leaf in specs.items():
            with gathering.catching(path=str(path)):
                new[path] = self._made(path, leaf, scene)
        gathering.raise_if_any()
        scene.name(new)
        like = {path: leaf.like for path, leaf in specs.items() if leaf.like is not None}
        after = with_new_leaves(self, draft, new, like, scene, takes_like=True)
        return self.noting_fans_of(self.init, after, draft) if self.init else after

    def check_values(self) -> None:
        super().check_values()
        refuse_old_slots(self)
        if bool(self.init) == (self.with_ is not None):
            raise PlanError(
                worded("`add` has both {init} and {with}")
                if self.init
                else "`add` does not say what the new leaves hold",
                why="each says the values" if self.init else "",
                fix=worded("say {init: lecun_normal}, or {with: 0}, a file or a checkpoint"),
                field="init" if self.init else "with",
            )
        if self.from_ and not isinstance(self.with_, str):
            raise PlanError(
                worded("{from} needs something to take leaves from"),
                fix=worded("name a checkpoint or a file in {with}"),
                field="from",
            )
        if self.dtype:
            check_storable(self.dtype, "dtype")
        if isinstance(self.with_, int | float):
            check_finite(self.with_, "with")
        check_shape(self.shape)
        for pattern in self.patterns:
            check_place(next(_numbered(pattern)))

    # --- what the leaves will be -------------------------------------------------------------------------

    def _specs(self, place: LeafPath, here: Here, scene: Scene) -> dict[LeafPath, _New]:
        """The leaves at a place."""
        draft = here.draft
        tree, there = self._of_source(place, scene) if isinstance(self.with_, str) else (None, None)
        if self.like:
            node = node_of(self.like, draft.tree, "the tree", "like")
            found = {path: spec for path, spec in draft.tree.items() if path.is_below(node)}
            return {
                place / path[len(node) :]: _New(
                    self._stated(spec),
                    path,
                    None if there is None else there / path[len(node) :],
                )
                for path, spec in found.items()
            }
        if tree is not None and there is not None and (self.shape is None or there not in tree):
            source = scene.open(split_entry(str(self.with_))[0])[1]
            return {
                new: _New(self._held(new, spec, here, source), None, path)
                for path, spec in tree.items()
                if path.is_below(there) and (new := place / path[len(there) :])
            }
        if self.shape is None or not self.dtype:
            raise PlanError(
                f"nothing says what '{place}' is"
                if self.shape is None
                else f"nothing says the dtype of '{place}'",
                why=worded("a new leaf has a shape and a dtype"),
                fix=worded(
                    "name one that it is like as {like: params/Dense_0}, or say {shape: '64, 10'} and {dtype: float32}"
                ),
                field="like",
            )
        model = here.usual(place)
        alone = LeafSpec(kind=LeafKind.ARRAY, dtype=self.dtype)
        shape = shaped(alone, self.shape).shape
        spec = alone if model is None else rearranged(model, shape, [None] * len(shape))
        spec = self._stated(msgspec.structs.replace(spec, shape=shape))
        return {place: _New(spec, None, there)}

    def _stated(self, spec: LeafSpec) -> LeafSpec:
        """What the edit says of a leaf, which is otherwise like another."""
        if not spec.has_array:
            return spec
        spec = shaped(spec, self.shape) if self.like else spec
        kind = spec.kind if self.kind is None else LeafKind(self.kind)
        dtype = self.dtype or spec.dtype
        return msgspec.structs.replace(spec, kind=kind, dtype=dtype, stored_bytes=None)

    def _held(self, path: LeafPath, spec: LeafSpec, here: Here, source: Source) -> LeafSpec:
        """A leaf of a source as it will be: whose array it is goes by the dtype that it gets, if the edit is silent."""
        stated = self._stated(spec)
        return stated if self.kind else here.held(path, stated, source)

    def _of_source(self, place: LeafPath, scene: Scene) -> tuple[TreeSpec, LeafPath]:
        """What leaves come from, and the node there."""
        assert isinstance(self.with_, str)
        file, entry = split_entry(self.with_)
        tree = scene.open(file)[1].tree
        text = entry or self.from_
        if not text and len(tree) == 1 and len(next(iter(tree))) <= 1:
            return tree, next(iter(tree))  # a file of one array
        return tree, node_of(text or place.spelling, tree, f"'{file}'", "from" if text else "with")

    # --- what they hold ----------------------------------------------------------------------------------

    def _made(self, path: LeafPath, leaf: _New, scene: Scene) -> Output:
        spec = leaf.spec
        if spec.kind is LeafKind.EMPTY:
            return Output.empty(spec)
        if isinstance(self.with_, str):
            assert leaf.origin is not None
            file = split_entry(self.with_)[0]
            name, source = scene.open(file)
            if leaf.origin not in source.tree:
                find_leaf(file, source, str(leaf.origin), field="from")
            taking = Replace(with_=self.with_, cast=self.cast)
            return taking.grafted(path, spec, LeafRef(name, leaf.origin), source.tree[leaf.origin])
        if self.with_ is not None:
            Replace(with_=self.with_).output(spec)
            return _output(Made(Fill(self.with_), (), spec, path), Sets(self.with_))
        if not is_numeric(spec):
            raise PlanError(
                f"an initializer does not draw '{path}', which is {spec.type_text}",
                why="it draws floating values",
                fix=worded("name smaller subtrees, and add this leaf as {with: 0} or from a file"),
                field="init",
            )
        effect = self.effect_of(self.init_of(spec))
        return _output(Made(self.drawn(spec, scene), (), spec, path), effect)


def _output(recipe: Made, effect: Effect) -> Output:
    return Output(recipe, None, edits=(Edited("add", effect),))


def _numbered(text: str) -> Iterator[str]:
    """The text with every number of its ranges: `layers_{12..15}`."""
    found = _NUMBERS.search(text)
    numbers = read_range(found[1]) if found else None
    if found is None or numbers is None:
        yield text
        return
    for number in numbers.texts():
        yield from _numbered(text[: found.start()] + number + text[found.end() :])


def _refuse_standing(place: LeafPath, draft: Draft, new: Mapping[LeafPath, _New]) -> None:
    """See that nothing stands at a place, nor is to come there."""
    there = draft.leaves.get(place)
    is_node = place in draft.tree.nodes or any(path.is_below(place) for path in new)
    if not is_node and (there is None or there.spec.empty == "Dict"):
        return
    raise PlanError(
        f"'{place}' is there already",
        why="`add` puts leaves where nothing stands",
        fix=f"`reinit` or `replace` give it other values; `merge` adds what it lacks; or `delete` '{place}' first",
        path=str(place),
        field="at",
    )


def _refuse_in_state(place: LeafPath, draft: Draft) -> None:
    """See that a place is not in a state of the optimizer, which would not be told any more for what it is."""
    states = dict.fromkeys(slot.state for slot in draft.slots.values() if slot.in_optimizer)
    state = next((node for node in states if node and place.is_below(node)), None)
    if state is not None:
        raise PlanError(
            f"'{place}' would be new in '{state}', a state of the optimizer",
            why="the optimizer has nothing else there than it makes itself",
            fix=worded("add the param: its slots come along; or say {twins: named}"),
            path=str(place),
            field="at",
        )
