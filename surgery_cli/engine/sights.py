"""Which rules look at values together: those on one leaf as it stands there, but for digests over different blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from surgery_cli.draft.check import Check, CheckedLeaf
from surgery_cli.draft.expression import Recipe, Stored
from surgery_cli.draft.kernel import Window
from surgery_cli.draft.reads import reads
from surgery_cli.draft.seen import Differing
from surgery_cli.engine.bounded_reads import Reading, met_by
from surgery_cli.engine.composition import UNBOUNDED, Composition
from surgery_cli.engine.grid import block_shape, windows
from surgery_cli.engine.judged_reads import compared_reading, digested_reading
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.sidecars import write_shape

Grid: TypeAlias = tuple[int, ...]


class Sight(NamedTuple):
    """Values, by the id of what makes them, that are read in blocks: of any shape, or in whole ones of a ``grid``.

    Where such ``blocks`` would take more than there may be, they are read in ``parts`` for one rule alone: those that
    suit the ``other`` leaf with which they are compared (by the id of what makes it), or one after the other along the
    blocks of the ``grid``.
    """

    recipe: int
    block: Grid
    grid: Grid | None = None
    parts: Reading | None = None
    other: int | None = None


class Sights:
    """The sights of the leaves of some checks: rules that take any blocks join those that need a grid."""

    def __init__(self, checks: Sequence[Check], memory_bytes: int = UNBOUNDED) -> None:
        self._memory_bytes = memory_bytes
        self._parts: dict[tuple[int, object, object], Reading | None] = {}
        self._grids: dict[int, Grid] = {}
        for leaf in (leaf for check in checks for leaf in check.on):
            if (grid := _grid_of(leaf)) is not None and self._in_parts(leaf) is None:
                self._grids.setdefault(id(leaf.recipe), grid)

    def of(self, leaf: CheckedLeaf) -> Sight:
        """Where the values of a leaf are seen for its rule."""
        own = _grid_of(leaf)
        if (parts := self._in_parts(leaf)) is not None:
            other = None if leaf.other is None else id(leaf.other)
            return Sight(id(leaf.recipe), parts.part, own, parts, other)
        grid = self._grids.get(id(leaf.recipe)) if own is None else own
        return self.alone(leaf.recipe, grid)

    def _in_parts(self, leaf: CheckedLeaf) -> Reading | None:
        """How a leaf is read for its rule alone, where that takes less."""
        beside = _grid_of(leaf) if leaf.other is None else id(leaf.other)
        key = id(leaf.recipe), leaf.rule.sees, beside
        if key not in self._parts:
            self._parts[key] = parts_within(leaf, self._memory_bytes)
        return self._parts[key]

    @staticmethod
    def alone(recipe: Recipe, grid: Grid | None = None) -> Sight:
        """Where values are seen of which no rule asks more."""
        spec = recipe.spec
        unit = spec.write_shape if grid is None else grid
        return Sight(id(recipe), block_shape(spec, unit), grid)

    def passing(self, written: Iterable[PlannedLeaf]) -> dict[int, Sight]:
        """Of each leaf that is ``written`` the sight for which its blocks do, by what makes its values.

        Sights that are none of these checks' may be among them.
        """
        found: dict[int, Sight] = {}
        for leaf in written:
            recipe, block = leaf.recipe, block_shape(leaf.spec, write_shape(leaf))
            grid = self._grids.get(id(recipe))
            if grid is None or _is_cut_along(leaf.spec.shape, block, grid):
                found[id(recipe)] = self.alone(recipe, grid)
        return found


def parts_within(leaf: CheckedLeaf, memory_bytes: int) -> Reading | None:
    """In which parts a leaf is read to be judged, where blocks would take more than there may be.

    Only what comes out the same however it is cut: how many values differ, and digests of the blocks of a grid.
    """
    recipe, grid = leaf.recipe, _grid_of(leaf)
    if memory_bytes >= UNBOUNDED:
        return None
    if leaf.rule.sees is Differing and leaf.other is not None:
        block = Sights.alone(recipe).block
        return compared_reading(recipe, leaf.other, block, memory_bytes)
    if grid is not None and recipe.spec.has_array:
        return digested_reading(recipe, grid, memory_bytes)
    return None


def _grid_of(leaf: CheckedLeaf) -> Grid | None:
    """The blocks that a rule asks for; where it asks for those of the leaf itself, these."""
    grid, spec = leaf.rule.grid, leaf.recipe.spec
    if grid is None or len(grid) == len(spec.shape):
        return grid
    return block_shape(spec, spec.write_shape)


def _is_cut_along(shape: Grid, block: Grid, grid: Grid) -> bool:
    """True if every block of a leaf has whole blocks of a grid, but for those cut off where the leaf ends."""
    axes = zip(shape, block, grid, strict=True)
    return all(part >= size or part % max(unit, 1) == 0 for size, part, unit in axes)


class JudgedRead(NamedTuple):
    """Values that are read beside what is written: in blocks, or in other ``parts``."""

    recipe: Recipe
    block: Grid
    parts: Reading | None = None

    @property
    def blocks(self) -> list[Window]:
        """The blocks, or parts, in which they are made."""
        shape = self.recipe.spec.shape
        if self.parts is None:
            is_whole = Composition(self.recipe).is_whole
            return list(windows(shape, shape if is_whole else self.block))
        return [part for _, parts in self.parts.windows(shape) for part in parts]

    @property
    def times(self) -> int:
        """How often a stored chunk is decoded for that, at most."""
        return 1 if self.parts is None else self.parts.times

    def reads(self) -> Iterator[tuple[Stored, Window]]:
        """What is read of stored leaves, window by window."""
        for block in self.blocks:
            for part, window in reads(self.recipe, block):
                if self.parts is None or not self.parts.is_by_chunk:
                    yield part, window
                    continue
                pieces = met_by(window, part.spec.chunk_shape or part.spec.shape)
                yield from ((part, piece) for piece in pieces)


def judged_reads(
    checks: Sequence[Check], written: Iterable[PlannedLeaf], memory_bytes: int = UNBOUNDED
) -> list[JudgedRead]:
    """What is read beside what is ``written``: leaves as they stood, and what they are compared with."""
    sights = Sights(checks, memory_bytes)
    passing = set(sights.passing(written).values())
    found: dict[object, JudgedRead] = {}
    for leaf in (leaf for check in checks for leaf in check.on):
        sight = sights.of(leaf)
        if sight not in passing:
            found[sight] = JudgedRead(leaf.recipe, sight.block, sight.parts)
        if leaf.other is None:
            continue
        # what it is compared with is read for that, whoever else reads it
        found[sight, leaf.rule.sees, id(leaf.other)] = JudgedRead(
            leaf.other, sight.block, sight.parts
        )
    return list(found.values())


def judged_recipes(
    checks: Sequence[Check], written: Iterable[PlannedLeaf], memory_bytes: int = UNBOUNDED
) -> list[Recipe]:
    """The recipes of ``judged_reads``; one that is read in several ways stands there as often."""
    return [one.recipe for one in judged_reads(checks, written, memory_bytes)]
