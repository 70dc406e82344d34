"""Which rules look at values together: those on one leaf as it stands there, but for digests over different blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from surgery_cli.draft.check import Check, CheckedLeaf
from surgery_cli.draft.expression import Recipe
from surgery_cli.engine.grid import block_shape
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.sidecars import write_shape

Grid: TypeAlias = tuple[int, ...]


class Sight(NamedTuple):
    """Values, by the id of what makes them, that are read in blocks: of any shape, or in whole ones of a ``grid``."""

    recipe: int
    block: Grid
    grid: Grid | None = None


class Sights:
    """The sights of the leaves of some checks: rules that take any blocks join those that need a grid."""

    def __init__(self, checks: Sequence[Check]) -> None:
        self._grids: dict[int, Grid] = {}
        for leaf in (leaf for check in checks for leaf in check.on):
            if (grid := _grid_of(leaf)) is not None:
                self._grids.setdefault(id(leaf.recipe), grid)

    def of(self, leaf: CheckedLeaf) -> Sight:
        """Where the values of a leaf are seen for its rule."""
        own = _grid_of(leaf)
        grid = self._grids.get(id(leaf.recipe)) if own is None else own
        return self.alone(leaf.recipe, grid)

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
