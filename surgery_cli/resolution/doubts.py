"""What is wrong with an edit only because an earlier one failed: that is reported already."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, Problem
from surgery_cli.operations.base import LeafOperation, Operation
from surgery_cli.operations.rearranging import ShapeEdit
from surgery_cli.operations.sequences import OptimizerState
from surgery_cli.resolution.selection import NothingNamed
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.specs import lists_in
from surgery_cli.tree.spelling import is_spelled, unescaped
from surgery_cli.tree.targets import REFERENCE

_OPEN_RANGE: Final = re.compile(r"\{[0-9]+\.\.\}")


class Doubts:
    """What edits that failed might have done, and which problems of later ones are news all the same."""

    def __init__(self) -> None:
        self._to: list[str] = []
        """Patterns of where edits that failed say that they put leaves."""
        self._is_other_count = False
        """True once an edit failed that might have changed how many leaves there are."""
        self._of_unsure_shape: set[str] = set()
        """Leaves to which an edit could not give a shape: later ones may not fit them for that reason alone."""
        self._known: set[str] = set()
        """What consequences of reported problems say."""

    def failed(self, edit: Operation, named: Iterable[LeafPath] | None) -> None:
        """Remember an edit that was not done; ``named`` are the leaves that it named, if it came so far."""
        self._to += targets_of(edit)
        self._is_other_count |= edit.writes and not isinstance(edit, LeafOperation)
        if isinstance(edit, ShapeEdit) and named is not None:
            self._of_unsure_shape.update(map(str, named))

    def know(self, what: str) -> None:
        """Take what says this for a consequence."""
        self._known.add(what)

    def is_news(self, problem: Problem) -> bool:
        """True unless it is there because of one that is reported already."""
        return problem.what not in self._known and problem.path not in self._of_unsure_shape

    def places(self, draft: Draft) -> list[str]:
        """Patterns of where leaves might stand by now, at or below: elements of lists move up, and twins along."""
        if not self._is_other_count:
            return []
        optimizer = OptimizerState(draft)
        lists = [node for node in lists_in(draft.leaves) if not optimizer.holds(node)]
        twins = (slot.node for slot in draft.slots.values() if self._to or lists)
        return [*self._to, *{node.exact_pattern for node in (*lists, *twins)}]

    def news(self, error: NothingNamed, draft: Draft) -> Iterator[Problem]:
        """What is wrong with an edit, and would be if all the earlier ones had been done."""
        places = self.places(draft)
        for problem in error.problems:
            pattern = error.patterns.get(problem)
            if pattern is not None:
                is_explained = any(may_meet(pattern.text, place) for place in places)
            else:
                is_explained = bool(places) if error.is_too_few else self._is_other_count
            if not is_explained:
                yield problem


def targets_of(edit: Operation) -> list[str]:
    """Patterns of where an edit says that it puts leaves, at or below."""
    if edit.target_fields is None:
        return ["**"]
    found: list[str] = []
    for field in msgspec.structs.fields(edit):
        said = getattr(edit, field.name)
        if said and field.encode_name in edit.target_fields:
            several = said.values() if isinstance(said, Mapping) else said
            found += map(pattern_of, [said] if isinstance(said, str) else several)
    return found


def pattern_of(place: str) -> str:
    r"""A pattern of all places that the text of `to` may mean: what a reference takes may be several keys.

    >>> pattern_of(r"params/blocks_{0..3}/\1/kernel"), pattern_of("params/row_{0..}")
    ('params/blocks_{0..3}/**', 'params/row_*')
    """
    keys = _OPEN_RANGE.sub("*", place).split("/")
    known = list(itertools.takewhile(lambda key: not REFERENCE.search(key), keys))
    return "/".join(known if known == keys else [*known, "**"])


def may_meet(one: str, other: str) -> bool:
    """False if nothing that a pattern names can stand at, above or below what the other one names.

    >>> may_meet("params/*/kernel", "params/head"), may_meet("params/Dense_1", "params/head/kernel")
    (True, False)
    """
    if any(text.startswith("re:") or is_spelled(text) for text in (one, other)):
        return True
    for a, b in zip(one.strip("/").split("/"), other.strip("/").split("/"), strict=False):
        if "**" in (a, b):
            return True
        try:
            first, second = PathPattern(a), PathPattern(b)
        except PlanError:  # braces that hold slashes
            return True
        if second.is_literal and first.match(LeafPath((unescaped(b),))) is None:
            return False
        if first.is_literal and second.match(LeafPath((unescaped(a),))) is None:
            return False
    return True
