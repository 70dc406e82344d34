"""Which layouts, states and edits meet: all of them on request, else a quarter of the pairs of layout and edit."""

from collections.abc import Iterator, Sequence

from tests.judge.edits import EDITS, Edit
from tests.judge.layouts import LAYOUTS, Layout
from tests.judge.targets import TARGETS, Target
from tests.judge.values_and_shapes import VALUES_AND_SHAPES

Combination = tuple[Layout, Target, Edit]

QUARTER = 4
EVERY_EDIT = [*EDITS, *VALUES_AND_SHAPES]

PLAIN_EDITS = {
    "nothing",
    "rescale-compact",
    "cast",
    "replace-from-ocdbt-zarr3",
    "rename-then-rescale",
    "rotation",
    "copy",
    "delete",
    "keep",
}


def combinations(*, every: bool) -> Iterator[Combination]:
    """The combinations that are restored with the original target."""
    return _chosen(LAYOUTS, EVERY_EDIT, every=every)


def plain_combinations(*, every: bool) -> Iterator[Combination]:
    """The combinations that are restored without a target, where Orbax allows that."""
    edits = [edit for edit in EVERY_EDIT if every or edit.name in PLAIN_EDITS]
    return _chosen([layout for layout in LAYOUTS if layout.plain is not None], edits, every=every)


def _chosen(
    layouts: Sequence[Layout], edits: Sequence[Edit], *, every: bool
) -> Iterator[Combination]:
    """Each edit in a quarter of the layouts, which take turns as the states do: every one meets every other's kind.

    ``tests/random_plans`` draws from the same edits and layouts, in other orders.
    """
    for number, layout in enumerate(layouts):
        targets = [target for target in TARGETS if layout.supports(target)]
        for turn, edit in enumerate(edits):
            if not every and (number + turn) % QUARTER:
                continue
            chosen = targets if every else [targets[(number + turn // QUARTER) % len(targets)]]
            for target in chosen:
                yield layout, target, edit
