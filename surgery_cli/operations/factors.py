"""Factors that are arrays: finding them among the sources, and what they mean for a twin of the leaf."""

from __future__ import annotations

import math
import re
from typing import Any

from surgery_cli.draft.effect import Effect, Scales, Shifts
from surgery_cli.draft.recipe import LeafRef, Operand, Recipe, Step, is_numeric
from surgery_cli.errors import MissingError, PlanError
from surgery_cli.operations.base import Cut, Kit, LeafOperation, Place, Scene, Source
from surgery_cli.operations.left_of_start import left_of_start
from surgery_cli.operations.underflow import refuse_lost_products
from surgery_cli.tree.dtypes import is_complex, is_integer
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.advice import worded

_ENTRY = re.compile(r"(.+\.(?:npz|safetensors)):(.+)")
_HAS_ENTRIES = (".npz", ".safetensors")
_ARRAY_FILES = (".npy", *_HAS_ENTRIES)


def split_entry(text: str) -> tuple[str, str | None]:
    """A file and the entry in it.

    >>> split_entry("scales.npz:conv/w"), split_entry("scale.npy")
    (('scales.npz', 'conv/w'), ('scale.npy', None))
    """
    found = _ENTRY.fullmatch(text)
    return (found[1], found[2]) if found else (text, None)


def find_leaf(text: str, source: Source, wanted: str, *, field: str) -> LeafPath:
    """The leaf of a source with this printed path (or unambiguous spelling).

    Raises:
        PlanError: it has none, or a node, or two that print alike.
    """
    leaves = [path for path, spec in source.tree.items() if spec.kind is not LeafKind.EMPTY]
    found = [p for p in leaves if str(p) == wanted] or [p for p in leaves if p.spelling == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        raise PlanError(
            f"'{wanted}' means {len(found)} leaves of '{text}'",
            why="they print alike: " + ", ".join(f"'{p.spelling}'" for p in found),
            fix="a slash inside a key is written `%2F`",
            field=field,
        )
    below = [str(p) for p in leaves if str(p).startswith(f"{wanted}/")]
    near = below[:3] or nearest(wanted, map(str, leaves)) or [str(p) for p in leaves[:3]]
    fix = "it has " + ", ".join(f"'{name}'" for name in near)
    if near and text.endswith(_HAS_ENTRIES):
        fix = f"name an entry, as `{text}:{near[0]}`; {fix}"
    raise PlanError(
        f"'{text}' has no leaf '{wanted}'",
        why=f"'{wanted}' is a node there, not a leaf" if below else "",
        fix=fix,
        field=field,
    )


def _open_factor(file: str, scene: Scene) -> tuple[str, Source]:
    """What ``by`` names.

    Raises:
        PlanError: nothing of that name is there.
    """
    try:
        return scene.open(file)
    except MissingError as error:
        if file.endswith(_ARRAY_FILES):
            raise
        raise PlanError(
            worded("{by} takes a number or an array file; '{}' is neither", file),
            why=error.problems[0].what,
            fix="give a number, or a `.npy`, `.npz` or `.safetensors` file",
            field="by",
        ) from None


def find_factor(text: str, path: LeafPath, spec: LeafSpec, scene: Scene) -> Operand:
    """The array that ``text`` names, for a leaf: the entry, else the only leaf, else the one at the same path.

    Raises:
        PlanError: there is none, it holds no numbers, or it does not broadcast to the leaf.
    """
    file, entry = split_entry(text)
    name, source = _open_factor(file, scene)
    if entry is None and len(source.tree) == 1:
        found = next(iter(source.tree))
    else:
        found = find_leaf(file, source, entry or str(path), field="by")
    factor = source.tree[found]
    is_number = is_numeric(factor) or is_integer(factor.dtype) or factor.dtype == "bool"
    if factor.kind is LeafKind.KEY or not is_number or _is_complex_for_real(factor, spec):
        raise PlanError(
            f"'{text}' is no factor for {spec.type_text}",
            why=f"it holds {factor.type_text}",
            field="by",
        )
    if not broadcasts(factor.shape, spec.shape):
        raise PlanError(
            f"'{text}' does not broadcast to '{path}'",
            why=f"the factor has shape {list(factor.shape)}, the leaf {list(spec.shape)}",
            fix="every axis, counted from the last, must be 1 or as long as the leaf's",
            field="by",
        )
    return Operand("by", LeafRef(name, found), factor)


def _is_complex_for_real(factor: LeafSpec, spec: LeafSpec) -> bool:
    return is_complex(factor.dtype) and not is_complex(spec.dtype)


def broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """True if an array of ``shape`` broadcasts to exactly ``to``.

    >>> broadcasts((3,), (2, 3)), broadcasts((2, 3), (3,)), broadcasts((2, 1), (2, 3))
    (True, False, True)
    """
    if len(shape) > len(to):
        return False
    return all(n in (1, m) for n, m in zip(shape[::-1], to[::-1], strict=False))


def power_of(factor: float, power: int, *, even: bool) -> float | None:
    """sign(factor)^odd · |factor|^power; None where a float holds no such number other than 0."""
    try:
        size = abs(factor) ** power
    except (OverflowError, ZeroDivisionError):
        return None
    if factor == 0 or size == 0:
        return None
    return size if even or factor > 0 else -size


def smallest_factor(factor: Any, kit: Kit, power: int = 1) -> float:
    """The size of the smallest |factor|^power over factors that are not 0; infinite if there are none.

    ``factor``: an array, [any shape].
    """
    far = math.inf if power > 0 else 0.0

    def extreme(x: Any) -> Any:
        size = kit.xp.where(x == 0, far, abs(x))
        return size.min() if power > 0 else size.max()

    base = float(kit.apply(extreme, factor))
    try:
        return math.inf if math.isnan(base) else base**power
    except (OverflowError, ZeroDivisionError):  # of a negative power: the product is far too large
        return math.inf


def _largest_power(factor: Any, kit: Kit, power: int) -> float:
    """The largest |factor|^power over factors that are not 0; 0 if there are none."""
    inverse = smallest_factor(factor, kit, -power)
    return 1 / inverse if inverse else math.inf


class ScaleByPower(LeafOperation, tag="scale_by_power", kw_only=True, frozen=True):
    """Multiply a twin, but for what is left of its ``start``, by a power of its param's array factor.

    Where that factor is 0 there is no old gradient to follow, whatever the power: moments of first order start again
    with the param (``fresh``), squares stay (None), so that the next steps there are no larger than usual. The twin has
    the param's shape, perhaps with axes in front.
    """

    by: str
    power: int
    even: bool
    param: LeafPath
    start: float = 0.0
    blur: float = 0.0
    fresh: float | None = None

    def operands(self, path: LeafPath, spec: LeafSpec, scene: Scene) -> tuple[Operand, ...]:
        factor = find_factor(self.by, self.param, spec, scene)
        if is_complex(factor.spec.dtype):
            raise PlanError(
                f"'{path}' cannot follow a complex factor",
                why="no rule is known for optimizer state",
                fix=worded("use {optimizer: keep} or `reset`"),
            )
        return (factor,)

    @property
    def effect(self) -> Effect:
        return Scales()

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        base = at.operands["by"]
        left = left_of_start(block, self.start, self.blur, kit, at, even=self.even)

        def scaled(x: Any) -> Any:
            zero = base == 0
            size = kit.xp.abs(base.astype("float64")) + zero
            sign = 1.0 if self.even else kit.xp.where(base < 0, -1.0, 1.0)
            new = left.scaled(x, sign * size**self.power)
            return kit.xp.where(zero, x if self.fresh is None else self.fresh, new)

        new = kit.in_float32(block, scaled)
        followed = block
        if self.fresh is not None:
            followed = kit.apply(lambda x: kit.xp.where(base == 0, 0, x), block)
        refuse_lost_products(followed, new, smallest_factor(base, kit, self.power), kit, at)
        left.refuse_blurred(new, _largest_power(base, kit, self.power), at)
        return new


class ScaleAboveStart(LeafOperation, tag="scale_above_start", kw_only=True, frozen=True):
    """Multiply what a twin has gathered above what is left of its start; see ``LeftOfStart`` for ``blur``."""

    by: float
    start: float
    even: bool
    blur: float = 0.0

    @property
    def effect(self) -> Effect:
        return Shifts()

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        left = left_of_start(block, self.start, self.blur, kit, at, even=self.even)
        new = kit.in_float32(block, lambda x: left.scaled(x, self.by))
        left.refuse_blurred(new, abs(self.by), at)
        return new


class ScaleByMeasured(LeafOperation, tag="scale_by_measured", kw_only=True, frozen=True):
    """Multiply a twin by a power of the (positive) factor that an operation measures on its param.

    ``measure`` and ``finish`` see the param's blocks and the param's place; ``compute`` those of the twin. The param's
    factor is one number, or it has the shape of the twin's last axes.
    """

    measure_of: LeafOperation
    power: int
    start: float = 0.0
    blur: float = 0.0
    even: bool = False

    @property
    def cut(self) -> Cut:
        return self.measure_of.cut

    @property
    def measures(self) -> bool:
        return True

    @property
    def combine(self) -> str:
        return self.measure_of.combine

    def measured_axes(self, ndim: int) -> tuple[int, ...]:
        return self.measure_of.measured_axes(ndim)

    def step_on_twin(self, path: LeafPath, spec: LeafSpec, scene: Scene, param: Recipe) -> Step:
        return Step(self, path, spec, self.output(spec), measured_from=param)

    def temporary_bytes(self, leaf: LeafSpec) -> int | None:
        return self.measure_of.temporary_bytes(leaf)

    def measure(self, block: Any, kit: Kit, at: Place) -> Any:
        return self.measure_of.measure(block, kit, at)

    def finish(self, measured: Any, path: LeafPath) -> Any:
        return self.measure_of.finish(measured, path)

    @property
    def effect(self) -> Effect:
        return Scales()

    def compute(self, block: Any, kit: Kit, at: Place) -> Any:
        whole = at.measured.size == 1
        factor = at.measured.reshape(()) if whole else at.window(at.measured)
        left = left_of_start(block, self.start, self.blur, kit, at, even=self.even)
        new = kit.in_float32(block, lambda x: left.scaled(x, factor**self.power))
        refuse_lost_products(block, new, smallest_factor(factor, kit, self.power), kit, at)
        left.refuse_blurred(new, _largest_power(factor, kit, self.power), at)
        return new
