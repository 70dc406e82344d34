"""What is wrong with an edit only because an earlier one failed: that is reported already."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, Problem, SurgeryError
from surgery_cli.operations.base import LeafOperation, Operation
from surgery_cli.operations.rearranging import ShapeEdit
from surgery_cli.operations.regrouping import Regrouping
from surgery_cli.operations.sequences import OptimizerState
from surgery_cli.resolution.selection import NothingNamed
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.tree.spelling import is_spelled, unescaped
from surgery_cli.tree.targets import REFERENCE

_OPEN_RANGE: Final = re.compile(r"\{[0-9]+\.\.\}")
_MOST_NEAR: Final = 64
_WILD: Final = re.compile(r"[*?{\[]")


class Doubts:
    """What edits that failed might have done, and which problems of later ones are news all the same."""

    def __init__(self) -> None:
        self._to: list[str] = []
        """Patterns of where edits that failed say that they put leaves."""
        self._from: list[str] = []
        """Patterns of what they might have taken away."""
        self._meant: list[str] = []
        """Patterns of the places at which they might have changed something, as far as that can be told."""
        self._meant_values: list[str] = []
        """Likewise of edits of values."""
        self._near: list[str] = []
        """What stands near to names that name nothing: edits of places may mean that."""
        self._of_unsure_shape: set[str] = set()
        """Leaves to which an edit could not give a shape: later ones may not fit them for that reason alone."""
        self._known: set[str] = set()
        """What consequences of reported problems say."""

    def failed(
        self,
        edit: Operation,
        error: SurgeryError | None,
        draft: Draft,
        named: Iterable[LeafPath] | None = None,
    ) -> None:
        """Remember an edit that was not done, for a reason of its own or as the ``error`` says.

        ``named`` are the leaves that it named, if it came so far.
        """
        if not edit.writes:
            return
        missing = error.patterns.values() if isinstance(error, NothingNamed) else ()
        texts = {pattern.text for pattern in missing}
        targets = targets_of(edit, texts)
        wrong = {problem.field for problem in error.problems} if error else set()
        if wrong & {*(edit.target_fields or ())}:  # the right one may have more, or other numbers
            targets = [before_wildcards(target) for target in targets]
        meant = [] if texts else list(edit.patterns or ("**",))
        if isinstance(edit, LeafOperation):
            self._meant_values += meant
        else:
            there = (*draft.texts.values(), *(node.text for node in draft.tree.nodes if node))
            self._near += (near for text in texts for near in nearest(text, there, _MOST_NEAR))
            self._to += targets
            self._from += meant or ["**"]
            self._meant += [*meant, *targets]
        if isinstance(edit, ShapeEdit) and named is not None:
            self._of_unsure_shape.update(map(str, named))

    def know(self, what: str) -> None:
        """Take what says this for a consequence."""
        self._known.add(what)

    def is_news(self, problem: Problem) -> bool:
        """True unless it is there because of one that is reported already."""
        return problem.what not in self._known and problem.path not in self._of_unsure_shape

    def may_explain(self, edit: Operation, named: Collection[LeafPath] | None) -> bool:
        """True if what is wrong with an edit, other than what it names, may come of an earlier one that was not done.

        Another leaf stands in its place, parts do not fit together, a statement does not hold of the leaves ``named``.
        """
        if isinstance(edit, LeafOperation):
            return False
        if not edit.writes and named:
            places = [*self._meant, *self._meant_values]
            leaves = (path.exact_pattern for path in named)
            return all(any(may_meet(leaf, place) for place in places) for leaf in leaves)
        values = self._meant_values if isinstance(edit, Regrouping) else ()
        places = [*self._meant, *self._near, *values]
        own = [*edit.patterns, *targets_of(edit)]
        return any(may_meet(one, place) for one in own for place in places)

    def places(self, draft: Draft) -> list[str]:
        """Patterns of where leaves might stand by now, at or below: elements of lists move up, and twins along."""
        elements = {
            LeafPath(path[: depth + 1])
            for path in (draft.leaves if self._from else ())
            for depth, key in enumerate(path)
            if isinstance(key, int)
        }
        optimizer = OptimizerState(draft)
        moving = [one.exact_pattern for one in elements if not optimizer.holds(one.parent)]
        places = [*self._to, *moving]
        states = {(slot.node, slot.root) for slot in draft.slots.values()} if places else ()
        return [*places, *(twin_of(place, *state) for place in places for state in states)]

    def news(self, error: NothingNamed, edit: Operation, draft: Draft) -> Iterator[Problem]:
        """What is wrong with what an edit names, and would be if all the earlier ones had been done."""
        places = self.places(draft)
        for problem in error.problems:
            pattern = error.patterns.get(problem)
            own = (edit.patterns or ("**",)) if pattern is None else (pattern.text,)
            explaining = places if error.is_too_few else self._from
            if not any(may_meet(one, place) for one in own for place in explaining):
                yield problem


def twin_of(place: str, node: LeafPath, root: LeafPath) -> str:
    """A pattern of where the twins stand of params at a place: below the node that mirrors the ``root``."""
    front, state = f"{root.exact_pattern}/" if root else "", node.exact_pattern
    if place.startswith(front):
        return f"{state}/{place.removeprefix(front)}"
    return state if may_meet(place, root.exact_pattern) else place


def before_wildcards(pattern: str) -> str:
    """A pattern of all that stands below the keys of one in front of its first wildcard, or its own if it has none.

    >>> before_wildcards("params/layers_{1..2}/kernel"), before_wildcards("params/head")
    ('params/**', 'params/head')
    """
    keys = pattern.split("/")
    known = list(itertools.takewhile(lambda key: not _WILD.search(key), keys))
    return "/".join(known if known == keys else [*known, "**"])


def targets_of(edit: Operation, missing: Collection[str] = ()) -> list[str]:
    """Patterns of where an edit says that it puts leaves, at or below.

    With ``missing``, patterns of it, not where it puts what others name.
    """
    if edit.target_fields is None:
        return ["**"]
    found: list[str] = []
    for field in msgspec.structs.fields(edit):
        said = getattr(edit, field.name)
        if said and field.encode_name in edit.target_fields:
            several = said
            if isinstance(said, Mapping):
                several = [to for at, to in said.items() if not missing or at in missing]
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
        if a == b:
            continue
        if not (_WILD.search(a) or _WILD.search(b)):
            return False
        try:
            first, second = PathPattern(a), PathPattern(b)
        except PlanError:  # braces that hold slashes
            return True
        if second.is_literal and first.match(LeafPath((unescaped(b),))) is None:
            return False
        if first.is_literal and second.match(LeafPath((unescaped(a),))) is None:
            return False
    return True
