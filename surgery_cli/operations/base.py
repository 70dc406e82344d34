"""The contract of an operation: a rewrite of the draft, and for leaf operations one line of mathematics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, constant_after, is_new
from surgery_cli.draft.recipe import Draft, LeafRef, Operand, Output, Recipe, Step, is_numeric
from surgery_cli.errors import PlanError
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafSpec, TreeSpec
from surgery_cli.words.advice import worded

if TYPE_CHECKING:
    from surgery_cli.optimizer.detect.survey import OptimizerSurvey
    from surgery_cli.optimizer.slots import Slot

OptimizerPolicy = Annotated[
    str, Meta(pattern="^(keep|transform|reset|warm)$", description="What becomes of the twins.")
]


class Cut(Enum):
    """How an operation may be computed in blocks."""

    ELEMENTWISE = "elementwise"
    """Each output element depends on the input element at its place only: one pass."""
    MEASURED = "measured"
    """Elementwise, once a reduction over the whole leaf is known: two passes."""
    WHOLE = "whole"
    """Needs the whole leaf in memory."""


class Array(Protocol):
    """What NumPy and JAX arrays have in common, as far as operations need it."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    def astype(self, dtype: Any) -> Any: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __mul__(self, other: Any) -> Any: ...
    def __truediv__(self, other: Any) -> Any: ...


class Kit(Protocol):
    """Arithmetic on one device; operations are written once against it (see ``compute/``).

    The engine hands blocks over with ``put`` and takes results back with ``fetch``: NumPy in, NumPy out. Operations
    compute inside ``in_float32``, ``in_float64`` and ``apply`` only, so that the kit can hold the precision there.
    """

    @property
    def xp(self) -> Any:
        """The array namespace: ``numpy`` or ``jax.numpy``."""

    @property
    def tile_elements(self) -> int | None:
        """How many elements are best computed at once (what fits into a cache); None for whole blocks."""

    def put(self, block: Any, spec: LeafSpec) -> Any:
        """A NumPy block of a leaf on the device (spread over the mesh, if there is one), bit for bit."""

    def fetch(self, array: Any) -> Any:
        """What an operation returned (a measurement, too) as a NumPy array, bit for bit."""

    def in_float32(self, leaf: Any, function: Callable[[Any], Any]) -> Any:
        """``function(leaf)`` computed in float32 (wider dtypes stay as they are), cast back once."""

    def in_float64(self, leaf: Any, function: Callable[[Any], Any]) -> Any:
        """``function(leaf)`` computed in float64 or complex128, and left there: for measurements."""

    def apply(self, function: Callable[..., Any], *arrays: Any) -> Any:
        """``function(*arrays)`` in the dtypes that the arrays have."""

    def widened(self, leaf: Any) -> Any:
        """The leaf in the dtype in which it is computed: float32 for narrower floats."""

    def cast(self, leaf: Any, dtype: str) -> Any:
        """Convert to ``dtype`` by name, rounding to nearest even, once."""

    def add_scaled(self, total: Any, block: Any, factor: float) -> Any:
        """``total + factor * block`` in float64 or complex128; without a ``total`` (None), it begins one.

        ``total`` may be written over.
        """

    def quotient(self, total: Any, divisor: float, dtype: str) -> Any:
        """``total / divisor`` in ``dtype`` by name, rounded to nearest even, once. ``total`` may be written over."""

    def draw(self, distribution: str, seed: int, at: Place, **bounds: float) -> Any:
        """Random values of one block: float64 [block's shape], always drawn on the host, in NumPy.

        Each element depends on (seed, path, its C-order index in the leaf) only. ``distribution`` is ``uniform``
        (in [0, 1)), ``normal`` (standard), ``truncated_normal`` (standard, between ``lower`` and ``upper``).
        """

    def orthogonal(self, seed: int, at: Place, column_axis: int, *, is_delta: bool) -> Any:
        """A whole random leaf, float64 [leaf's shape], on the host: orthonormal along ``column_axis`` or across it.

        ``is_delta``: only the centre of the spatial axes, all but the last two, is not 0.
        """


class Place(NamedTuple):
    """Where a block stands in its leaf, and what is known of the whole."""

    path: LeafPath
    before: LeafSpec
    after: LeafSpec
    start: tuple[int, ...]
    """Offset of the block in the leaf, in elements."""
    shape: tuple[int, ...]
    """Shape of the block."""
    measured: Any = None
    """For operations that measure: what ``finish`` returned, [the leaf's shape with reduced axes of size 1]."""
    operands: Mapping[str, Any] = {}
    """Of the arrays that the operation asked for by ``operands``, what belongs to the block: [broadcasts to it].

    Many are read when they are asked for, one after the other, and not kept.
    """

    def window(self, array: Any) -> Any:
        """The part of ``array`` (broadcastable to the leaf) that belongs to this block."""
        offset = len(self.shape) - array.ndim
        return array[
            tuple(
                slice(None) if size == 1 else slice(s, s + n)
                for size, s, n in zip(
                    array.shape, self.start[offset:], self.shape[offset:], strict=True
                )
            )
        ]


class Source(Protocol):
    """Something that leaves can be taken from: a checkpoint or an array file."""

    @property
    def tree(self) -> TreeSpec: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def address(self) -> str:
        """Text that opens it again: an absolute path, `ROOT@N` for a step of a run."""

    @property
    def places(self) -> frozenset[str]:
        """The real paths of the trees in it: two names of one checkpoint have them in common."""

    @property
    def step(self) -> int | None:
        """The step that it is, of a run with several."""

    @property
    def steps(self) -> Mapping[int, str]:
        """The steps of the run that it belongs to, with the address of each."""


class Scene(Protocol):
    """What an edit may look at while it rewrites the draft; implemented by ``resolution``."""

    @property
    def seed(self) -> int: ...
    @property
    def source(self) -> Source:
        """The checkpoint that is edited."""

    def select(self, edit: Operation, draft: Draft) -> Selection:
        """The leaves that the edit names, in order; raises PlanError with the nearest paths if there are none."""

    def open(self, text: str) -> tuple[str, Source]:
        """A source by its name in the plan or by its path: the name under which the draft knows it, and itself."""

    def survey_of(self, name: str, *, tell: bool = False) -> OptimizerSurvey:
        """What the optimizer state of a source is, by the name under which the draft knows it; found once.

        ``tell``: values may be read, where only they tell which optimizer keeps a state.
        """

    def number(self, ref: LeafRef) -> float | None:
        """The value of a stored leaf with one element, such as a step count; None where it cannot be read."""

    def settle(self, params: Iterable[LeafPath], draft: Draft) -> None:
        """Raise PlanError if only the user can say which parts of the optimizer state belong to ``params``."""

    def policy(self, edit: Operation) -> str | None:
        """The edit's own ``optimizer``, else the plan's or the command's, else None."""

    def carried(
        self, draft: Draft, edit: LeafOperation, edited: Sequence[LeafPath], before: Draft
    ) -> Draft:
        """``draft`` with the twins of ``edited`` following by the policy."""


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
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="Exact count of leaves that the edit must name."),
    ] = None
    optional: Annotated[bool, Meta(description="May match nothing.")] = False
    optimizer: OptimizerPolicy | None = None
    twins: Annotated[
        str,
        Meta(
            pattern="^(carried|named)$",
            description="`named`: twins that the pattern names are edited as named.",
        ),
    ] = "carried"
    note: Annotated[str, Meta(description="A remark, kept in the record.")] = ""

    example: ClassVar[str] = ""
    """One edit of this kind as plan text (YAML); shown by `surgery operations`, run by a test."""
    selects_everything_without_at: ClassVar[bool] = False
    """True if ``at`` may be left out (`cast`)."""
    instead_of_at: ClassVar[tuple[str, ...]] = ()
    """Names, as in the plan, of fields that name leaves in place of ``at`` (`moves` of `rename`)."""
    is_literal: ClassVar[bool] = False
    """True if twins follow only where a pattern names them (`keep`)."""
    refuses_torn_twins: ClassVar[bool] = False
    """True if the edit may name params with their own twins: it refuses by itself what parts them (`rename`)."""
    takes_twins_apart: ClassVar[bool] = False
    """True if the edit means the same whether twins follow or are named by a pattern of their own (`delete`)."""
    path_fields: ClassVar[tuple[str, ...]] = ()
    """Names, as in the plan, of fields that may hold a path of a file or checkpoint: relative to the plan file."""

    @property
    def name(self) -> str:
        """The operation's name in plans and on the command line."""
        return str(self.__struct_config__.tag)

    @property
    def patterns(self) -> tuple[str, ...]:
        return (self.at,) if isinstance(self.at, str) else self.at

    @property
    def exceptions(self) -> tuple[str, ...]:
        return (self.except_,) if isinstance(self.except_, str) else self.except_

    @property
    def summary(self) -> str:
        """The edit in a line: what it names, and its own settings."""
        shared = set(Operation.__struct_fields__)
        given = {
            field.encode_name: getattr(self, field.name)
            for field in msgspec.structs.fields(self)
            if field.name not in shared
            and getattr(self, field.name) not in (field.default, None, {}, ())
        }
        own = " ".join(f"{name} {_shown(value)}" for name, value in given.items())
        named = (self.at,) if isinstance(self.at, str) else self.at
        return " ".join(part for part in (", ".join(named), own) if part)

    def selectable(self, spec: LeafSpec) -> bool:
        """True if a pattern of this edit names such leaves at all; value edits skip empties."""
        raise NotImplementedError

    def narrowed(self, selected: Selection, draft: Draft) -> Selection:
        """The leaves that the edit is about, where they are not simply those that its patterns select."""
        return selected

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        """The draft after this edit.

        Raises:
            PlanError: metadata shows that the edit cannot be done; everything wrong with it is listed.
        """
        raise NotImplementedError


class LeafOperation(Operation):
    """Same path, new value. Subclasses give ``cut`` and ``compute``, and where needed the hooks below."""

    @property
    def effect(self) -> Effect:
        """What the edit does to a leaf; everything that follows from it dispatches on this."""
        raise NotImplementedError

    @property
    def ignores_leaf(self) -> bool:
        """True if the new value does not depend on the old one, which is then not read."""
        return is_new(self.effect)

    @property
    def cut(self) -> Cut:
        """How this edit may be computed in blocks; it may depend on the fields."""
        return Cut.ELEMENTWISE

    @property
    def measures(self) -> bool:
        """True if ``measure`` and ``finish`` come before ``compute``; a WHOLE edit measures the whole leaf at once."""
        return self.cut is Cut.MEASURED

    @property
    def combine(self) -> str:
        """The NumPy ufunc that joins measurements of blocks: ``add``, ``maximum`` or ``hypot``.

        All of them have 0 as their neutral element: measurements are never negative.
        """
        return "add"

    def measured_axes(self, ndim: int) -> tuple[int, ...]:
        """The axes that a measurement reduces, counted from the first; all of them by default."""
        return tuple(range(ndim))

    def temporary_bytes(self, leaf: LeafSpec) -> int | None:
        """For WHOLE: the most that ``measure`` or ``compute`` hold at once beside the block that they are given.

        ``leaf`` is what is measured, or computed. None if that is not known; the engine then assumes much.
        """
        return None

    def selectable(self, spec: LeafSpec) -> bool:
        from surgery_cli.tree.specs import LeafKind

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

    def operands(self, path: LeafPath, spec: LeafSpec, scene: Scene) -> tuple[Operand, ...]:
        """Stored arrays that ``compute`` needs beside the leaf."""
        return ()

    def check(self, named: Sequence[LeafPath], draft: Draft, scene: Scene) -> None:
        """Look at all leaves that the edit names, before the first of them is edited; there are some.

        Raises:
            PlanError: something is wrong with the edit as a whole.
        """

    def step(self, path: LeafPath, spec: LeafSpec, scene: Scene) -> Step:
        """This edit as a step on one leaf. Raises as ``output``."""
        return Step(self, path, spec, self.output(spec), self.operands(path, spec, scene))

    def step_on_twin(self, path: LeafPath, spec: LeafSpec, scene: Scene, param: Recipe) -> Step:
        """This edit, got from ``carry``, as a step on a twin; ``param`` is its param's recipe before the edit."""
        return self.step(path, spec, scene)

    def measure(self, block: Any, kit: Kit, at: Place) -> Any:
        """For MEASURED: the block's share of the measurement, [block's shape, reduced axes of size 1]."""
        raise NotImplementedError

    def finish(self, measured: Any, path: LeafPath) -> Any:
        """For MEASURED: look at the whole measurement once, before the second pass.

        Raises:
            ValueRefusal: the edit must not be done with these values (a zero norm).
        """
        return measured

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        """The new values of one block: [block's shape] in, [block's shape] out, dtype of ``at.after``."""
        raise NotImplementedError

    def filled(self, before: float | None) -> float | None:
        """The one number that every element is afterwards; ``before`` is what every element was, if that is known."""
        return constant_after(self.effect, before)

    def carry(self, slot: Slot) -> tuple[LeafOperation, ...] | None:
        """The same edit for a twin in the optimizer state, as operations for ``step_on_twin``.

        Empty if the twin stays right as it is; None if no rule is known (the policy decides).
        """
        return None

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        from surgery_cli.errors import Gathering

        selected = scene.select(self, draft)
        if selected:
            self.check(selected, draft, scene)
        changed: dict[LeafPath, Output] = {}
        gathering = Gathering()
        for path in selected:
            recipe = draft.leaves[path]
            if self.leaves_alone(recipe.spec):
                continue
            with gathering.catching(path=str(path)):
                changed[path] = recipe.then(self.step(path, recipe.spec, scene))
        gathering.raise_if_any()
        return scene.carried(draft.with_leaves(changed), self, selected, draft)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{old} → {new}" for old, new in value.items())
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
