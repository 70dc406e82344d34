"""Of what leaves were made that an edit joined or took apart: of params as the edit says, of their slots likewise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Problem, raise_all
from surgery_cli.optimizer.follow.moved_slots import leaves_mirror
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import Text
from surgery_cli.words.lists import quoted


class Origin(NamedTuple):
    """The leaves before an edit of which one was made, in order; and by which map, of those that the edit names."""

    paths: tuple[LeafPath, ...]
    map: Arrangement | None = None


Origins: TypeAlias = Mapping[LeafPath, Origin]
"""By where a leaf stands after the edit; one that is not there was made of itself."""


def slot_origins(draft: Draft, params: Origins) -> dict[LeafPath, Origin]:
    """The same of all slots of ``params`` that are no such leaves themselves, in the draft before the edit.

    Raises:
        PlanError: slots are not alike in the params of which one is to be made, or have no place for what they become.
    """
    named = {path for origin in params.values() for path in origin.paths}
    states = _States(draft)
    found: dict[LeafPath, Origin] = {}
    problems: list[Problem] = []
    for new, (paths, _) in params.items():
        problems += states.differences(paths, new)
        for slot in draft.slots_of.get(paths[0], ()):
            if slot.path in named or problems:
                continue
            place = slot.place_for(new)
            if place is None:
                problems.append(leaves_mirror(slot, new))
            else:
                others = (slot.place_for(path) for path in paths)
                found[place] = Origin(tuple(path for path in others if path is not None))
    raise_all(problems)
    return found


class _States:
    """Which nodes of states keep something of a param, and which a hole."""

    def __init__(self, draft: Draft) -> None:
        self._slots_of = draft.slots_of
        self._above = {p for p in draft.slots_of if p not in draft.leaves}

    def differences(self, paths: Sequence[LeafPath], new: LeafPath) -> Iterator[Problem]:
        """What the state has otherwise of some of these params than of the first one."""
        first = self._nodes(paths[0]) if len(paths) > 1 else {}
        for path in paths[1:]:
            own = self._nodes(path)
            for node, slot in {**first, **own}.items():
                if _is_there(first.get(node)) == _is_there(own.get(node)):
                    continue
                ends = (paths[0], path) if _is_there(first.get(node)) else (path, paths[0])
                yield Problem(
                    f"'{ends[0]}' and '{ends[1]}' cannot share one leaf '{new}'",
                    why=f"the optimizer keeps '{node}' of one, and nothing of the other",
                    fix=Text(
                        "join those apart that it treats alike, or `delete` "
                        f"{quoted([slot.whole_state])} before, and let the script begin with fresh state"
                    ),
                    path=str(path),
                    field="at",
                )
                break

    def _nodes(self, param: LeafPath) -> dict[LeafPath, Slot]:
        above = (LeafPath(param[:depth]) for depth in range(len(param)))
        places = (*(node for node in above if node in self._above), param)
        return {slot.node: slot for place in places for slot in self._slots_of.get(place, ())}


def _is_there(slot: Slot | None) -> bool:
    return slot is not None and slot.relation != "hole"
