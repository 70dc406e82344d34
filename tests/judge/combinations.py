"""Which layouts, states and edits meet: all of them on request, else each pair of them at least once."""

from collections.abc import Iterator

from tests.judge.edits import EDITS, Edit
from tests.judge.layouts import LAYOUTS, Layout
from tests.judge.targets import TARGETS, Target
from tests.judge.values_and_shapes import VALUES_AND_SHAPES

Combination = tuple[Layout, Target, Edit]

EVERY_EDIT = [*EDITS, *VALUES_AND_SHAPES]

MAIN_TARGET = "chain"
"""Meets every layout under every edit."""

MAIN_LAYOUTS = {"standard", "leaves-zarr3", "composite", "v1-training", "flax-msgpack"}
"""Meet every state under every edit."""

ONE_LAYOUT = "composite"
"""Meets every state under edits of values and shapes, which differ in what they compute and not in where it stands."""

MAIN_EDITS = {"nothing", "rename-then-rescale", "rescale-compact"}
"""Meet every state in every layout."""

PLAIN_LAYOUTS = {"standard", "leaves-zarr2", "v1"}
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
    for layout in LAYOUTS:
        for target in TARGETS:
            for edit in EVERY_EDIT:
                main = {ONE_LAYOUT} if edit in VALUES_AND_SHAPES else MAIN_LAYOUTS
                is_main = (
                    target.name == MAIN_TARGET or layout.name in main or edit.name in MAIN_EDITS
                )
                if layout.supports(target) and (every or is_main):
                    yield layout, target, edit


def plain_combinations(*, every: bool) -> Iterator[Combination]:
    """The combinations that are restored without a target, where Orbax allows that."""
    for layout, target, edit in combinations(every=True):
        is_main = target.name == MAIN_TARGET or layout.name in PLAIN_LAYOUTS
        if layout.plain is not None and (every or (is_main and edit.name in PLAIN_EDITS)):
            yield layout, target, edit
