"""A pattern that names params and, without a word of its own, trees like them of which nothing says what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from surgery_cli.draft.effect import Effect, Means, Takes, gives_new_places, moves_alone
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Problem
from surgery_cli.tree.paths import LeafPath, PathPattern, Selection
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.lists import quoted

_SHOWN = 4


def named_untold(
    selected: Selection, draft: Draft, is_same: Callable[[Slot], bool] = lambda _: True
) -> Iterator[Problem]:
    """A problem for each pattern by which an edit would give such trees what it gives their params.

    Of a copy of the params that is meant; moments of an optimizer would get what makes none of them. ``is_same``: of a
    leaf of such a tree, whether it gets what its param gets.
    """
    for pattern, found in selected.by_pattern():
        untold: dict[LeafPath, Slot] = {}
        for path in found:
            slot = draft.slots.get(path)
            if slot is not None and _is_untold(slot) and slot.param in found and is_same(slot):
                untold.setdefault(slot.node, slot)
        if untold:
            yield _problem(pattern, list(untold.values()))


def tells_apart(effect: Effect) -> bool:
    """True if what the effect does to a copy of the params is another thing than what it does to moments.

    Means over checkpoints are right for either, and so is what comes from the same tree in one.
    """
    return gives_new_places(effect) or not (
        moves_alone(effect) or isinstance(effect, Takes | Means)
    )


def _is_untold(slot: Slot) -> bool:
    return slot.assumed is not None and not slot.in_optimizer


def _problem(pattern: PathPattern, untold: list[Slot]) -> Problem:
    first, *others = untold
    nodes = quoted([slot.node for slot in untold], _SHOWN, word="and")
    these, have = ("these are", "they have") if others else ("that is", "it has")
    ways = first.assumed.settled_by if first.assumed is not None else ""
    more = f"; and so of {quoted([slot.node for slot in others], _SHOWN, word='and')}"
    return Problem(
        f"'{pattern.text}' names params and leaves of {nodes}, and nothing says what {these}",
        why=f"{have} the names and shapes of params, and so have the moments of an optimizer, which follow their params"
        " and are not edited like them: squares would become negative",
        fix=Text(
            worded("name the params alone, below `{}/`; or ", first.root),
            ways,
            more if others else "",
            worded("; with {twins: named} all are edited as they are named"),
        ),
        path=str(first.path),
        field="at",
    )
