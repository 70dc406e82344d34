"""The contract of an operation: a rewrite of the draft, and for leaf operations one line of mathematics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, ClassVar, Protocol, Self

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, is_new
from surgery_cli.draft.expression import Recipe, made
from surgery_cli.draft.kernel import Kernel
from surgery_cli.draft.kernels.integers import with_dtype
from surgery_cli.draft.recipe import Draft, Edited, Output, is_numeric
from surgery_cli.draft.undo import Homes, Undo, difference
from surgery_cli.draft.user_function import UserFunction
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.field_order import own_fields_first
from surgery_cli.optimizer.follow.answers import OptimizerPolicy
from surgery_cli.optimizer.follow.origins import Origins
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.quantities import setting_text


class Scene(States, Protocol):
    """What an edit may look at while it rewrites the draft; implemented by ``resolution``."""

    def select(self, edit: Operation, draft: Draft) -> Selection:
        """The leaves that the edit names, in order; raises PlanError with the nearest paths if there are none."""

    def name(self, leaves: Iterable[LeafPath]) -> None:
        """Say what the edit is about, if no pattern of it selects that: the leaves that it brings."""

    def settle(self, params: Iterable[LeafPath], draft: Draft) -> None:
        """Raise PlanError if only the user can say which parts of the optimizer state belong to ``params``."""

    def function(self, text: str) -> UserFunction:
        """A function of the user's, by `FILE.py:FUNCTION`; raises SurgeryError if it cannot be loaded."""

    def policy(self, edit: Operation) -> str | None:
        """The edit's own ``optimizer``, else the plan's or the command's, else None."""

    def carried(
        self,
        draft: Draft,
        edit: ValueOperation,
        edited: Sequence[LeafPath],
        before: Draft,
        origins: Origins = MappingProxyType({}),
    ) -> Draft:
        """``draft`` with the twins of ``edited`` following by the policy; ``origins``: of what leaves were made."""


class Operation(
    msgspec.Struct,
    kw_only=True,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="op",
):
    """An edit: which leaves, and what happens to them. Fields are the keys of the plan file."""

    at: Annotated[
        str | tuple[str, ...], Meta(description="Pattern, or patterns, of the leaves to edit.")
    ] = ()
    except_: Annotated[
        str | tuple[str, ...], Meta(description="Pattern, or patterns, of leaves to leave out.")
    ] = msgspec.field(name="except", default=())
    where_dtype: Annotated[
        str, Meta(description="Only leaves of this dtype: `floating`, `bfloat16`, `int*`, …")
    ] = ""
    where_ndim: Annotated[
        Annotated[int, Meta(ge=0)] | None, Meta(description="Only leaves with this number of axes.")
    ] = None
    expect: Annotated[
        Annotated[int, Meta(ge=0)]
        | Annotated[str, Meta(pattern="^[0-9]{1,18} (leaf|leaves|nodes?)$", examples=["12 nodes"])]
        | None,
        Meta(
            description="Exact count of leaves that the edit must name; `12 nodes` counts what its patterns match."
        ),
    ] = None
    optional: Annotated[bool, Meta(description="May match nothing.")] = False
    optimizer: OptimizerPolicy | None = None
    twins: Annotated[
        str,
        Meta(
            pattern="^(carried|named|literal)$",
            description="`carried`: all follow; `named`: those that a pattern names, as named; `literal`: only those.",
        ),
    ] = "carried"
    note: Annotated[str, Meta(description="A remark, said and kept in the record.")] = ""

    example: ClassVar[str] = ""
    """One edit of this kind as plan text (YAML); shown by `surgery operations`, run by a test."""
    selects_everything_without_at: ClassVar[bool] = False
    """True if ``at`` may be left out (`cast`)."""
    instead_of_at: ClassVar[tuple[str, ...]] = ()
    """Names, as in the plan, of fields that name leaves in place of ``at`` (`moves` of `rename`)."""
    edits_the_rest: ClassVar[bool] = False
    """True if what no pattern names is edited, twins like other leaves (`keep`)."""
    refuses_torn_twins: ClassVar[bool] = False
    """True if the edit may name params with their own twins: it refuses by itself what parts them (`rename`)."""
    takes_twins_apart: ClassVar[bool] = False
    """True if the edit means the same whether twins follow or are named by a pattern of their own (`delete`)."""
    if_torn: ClassVar[str] = ""
    """What to do where the edit would part slots from their params, if not what is usual."""
    writes: ClassVar[bool] = True
    """False if the operation only looks: its command takes no destination (`assert`)."""
    dtype_fields: ClassVar[tuple[str, ...]] = ("where_dtype",)
    """Names, as in the plan, of fields that name dtypes of leaves, as `floating` and `int*` do."""
    exported_as: ClassVar[tuple[str, ...]] = ()
    """The format in which `--to` of its command writes what it makes, and fields that `output` says as well."""
    target_fields: ClassVar[tuple[str, ...] | None] = ()
    """Names, as in the plan, of fields that say at or below which places the edit puts leaves; None: anywhere."""
    path_fields: ClassVar[tuple[str, ...]] = ()
    """Names, as in the plan, of fields that may hold a path of a file or checkpoint: relative to the plan file."""
    local_fields: ClassVar[tuple[str, ...]] = ()
    """Of these, the ones that name files which are read on this machine alone: code."""
    unused_fields: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Names, as in the plan, of fields of every operation that would have no effect in this one, and why."""

    @property
    def name(self) -> str:
        """The operation's name in plans and on the command line."""
        return str(self.__struct_config__.tag)

    @property
    def effect(self) -> Effect | None:
        """What the edit does to the values of leaves; None if it only puts them somewhere, or looks."""
        return None

    @property
    def follows_nothing(self) -> bool:
        """True if the edit is about the leaves that its patterns name, and about no twin beside them."""
        return not self.writes or self.edits_the_rest or self.twins == "literal"

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.at,) if isinstance(self.at, str) else self.at

    @property
    def exceptions(self) -> tuple[str, ...]:
        return (self.except_,) if isinstance(self.except_, str) else self.except_

    @property
    def summary(self) -> str:
        """The edit in a line: what it names, and its own settings."""
        given = [
            f"{field.encode_name} {setting_text(getattr(self, field.name))}"
            for field in own_fields_first(type(self))
            if field.name not in Operation.__struct_fields__
            and getattr(self, field.name) not in (field.default, None, {}, ())
        ]
        return " ".join(filter(None, (", ".join(self.patterns), *given)))

    def selectable(self, spec: LeafSpec) -> bool:
        """True if a pattern of this edit names such leaves at all; value edits skip empties."""
        raise NotImplementedError

    def narrowed(self, selected: Selection, draft: Draft) -> Selection:
        """The leaves that the edit is about, where they are not simply those that its patterns select."""
        return selected

    def refuse(self, unused: Mapping[str, str]) -> None:
        """Raise PlanError if one of these fields says something; ``unused``: why it would have no effect."""
        for field in msgspec.structs.fields(self):
            if getattr(self, field.name) != field.default and (name := field.encode_name) in unused:
                what = worded("'{}' takes no {}", self.name, FieldName(name))
                raise PlanError(what, why=unused[name], fix="take it out of this edit", field=name)

    def settled(self, read: Callable[[str], bytes]) -> Self:
        """The edit with what stands in the small files that it names; raises PlanError if one does not say that."""
        return self

    def check_values(self) -> None:
        """Raise PlanError if the fields say what no checkpoint could take: all that `lint` asks for."""
        self.refuse(self.unused_fields)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        """The draft after this edit, whose values were checked; PlanError lists all that metadata shows to be wrong."""
        raise NotImplementedError

    def undo(self, before: Draft, after: Draft, home: Homes) -> Undo:
        """What undoes this edit, which made ``after`` of ``before``; ``home`` says where the source has a leaf.

        By default what stands elsewhere moves back, and values that were made are taken from the source. An operation
        with an exact inverse says it here, as entries of a plan that name the leaves by where they stand.
        """
        return difference(before, after, home)


class ValueOperation(Operation):
    """An edit that gives leaves new values: what it does to them is an effect, and their slots follow that."""

    @property
    def effect(self) -> Effect:
        """What the edit does to a leaf; everything that follows from it dispatches on this."""
        raise NotImplementedError

    def effect_on(self, recipe: Recipe, before: LeafSpec) -> Effect:
        """The effect on a leaf, like that before, of which the edit made this recipe: its factor, its map."""
        return self.effect

    def made(
        self, path: LeafPath, recipe: Recipe, scene: States, like: Recipe | None = None
    ) -> Recipe:
        """What the edit makes of a leaf alone; ``like``: what it made of the param that this one goes with.

        Raises:
            PlanError: the edit does not apply to such a leaf.
        """
        raise NotImplementedError


class LeafOperation(ValueOperation):
    """Same path, new value: an effect, and a kernel that computes it. Subclasses give both, and hooks where needed."""

    def kernel(self, path: LeafPath, spec: LeafSpec, scene: States) -> Kernel:
        """What computes the new values: of the leaf (unless they do not depend on it), then of ``inputs``."""
        raise NotImplementedError

    def inputs(self, path: LeafPath, recipe: Recipe, scene: States) -> tuple[Recipe, ...]:
        """What is computed with, beside the leaf: other stored arrays, or what is measured of it."""
        return ()

    def selectable(self, spec: LeafSpec) -> bool:
        return spec.kind is not LeafKind.EMPTY

    def leaves_alone(self, spec: LeafSpec) -> bool:
        """True if such a leaf already is what the edit would make it (a cast to its own dtype)."""
        return False

    def output(self, spec: LeafSpec) -> LeafSpec:
        """The spec that the edit leaves.

        Raises:
            PlanError: the edit does not apply to such a leaf.
        """
        if not is_numeric(spec):
            raise PlanError(
                f"{self.name} does not apply to {spec.type_text}",
                why="numeric edits change floating values only",
                fix=worded(
                    "add {where_dtype: floating} to skip such leaves, or name the leaves more closely"
                ),
            )
        return spec

    def check(self, named: Sequence[LeafPath], draft: Draft, scene: Scene) -> None:
        """Look at all leaves that the edit names, before any is edited; PlanError if it is wrong as a whole."""

    def maker(
        self, named: Selection, draft: Draft, scene: Scene
    ) -> Callable[[LeafPath, Recipe], Recipe]:
        """What makes the new leaves, one by one; for edits that look at all of them first, or at other leaves."""
        return lambda path, recipe: self.made(path, recipe, scene)

    def made(
        self, path: LeafPath, recipe: Recipe, scene: States, like: Recipe | None = None
    ) -> Recipe:
        after = self.output(recipe.spec)
        leaf = () if is_new(self.effect) else (recipe,)
        inputs = (*leaf, *self.inputs(path, recipe, scene))
        return made(self.kernel(path, recipe.spec, scene), inputs, after, path)

    def widened(self, named: Iterable[LeafPath], draft: Draft) -> Draft:
        """The draft with the leaves as they are computed, where that is in another dtype; see ``Numeric``."""
        return draft

    def partnered(
        self, named: Selection, draft: Draft, scene: Scene
    ) -> tuple[Selection, list[Consequence]]:
        """The leaves that are edited, and what is said of others that are named; see ``Partnered``."""
        return named, []

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        selected, notes = self.partnered(scene.select(self, draft), draft, scene)
        wide = self.widened(selected, draft)
        if selected:
            self.check(selected, wide, scene)
        make = self.maker(selected, wide, scene)
        changed: dict[LeafPath, Output] = {}
        gathering = Gathering()
        for path in (p for p in selected if not self.leaves_alone(draft.leaves[p].spec)):
            output = draft.leaves[path]
            with gathering.catching(path=str(path)):
                seen = wide.leaves[path]
                recipe = make(path, seen.recipe)
                edit = Edited(self.name, self.effect_on(recipe, seen.spec))
                changed[path] = output.then(with_dtype(recipe, output.spec, seen.spec, path), edit)
        gathering.raise_if_any()
        return scene.carried(draft.with_leaves(changed), self, selected, draft).noting(*notes)
