"""Which param a new one is like, as far as states of the optimizer are concerned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Problem
from surgery_cli.optimizer.detect.mirrors import is_param
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import FieldName, Text, joined, worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.series import folded

_Kept = frozenset[tuple[LeafPath, str, bool]]
"""What states have for a param: their fields, and whether there it is only a hole."""


class UnknownStates(Exception):
    """States leave out some params, and nothing tells whether a new one is among these.

    It is a question, asked once for all params of which it is one: those below the same root, or like the same one,
    which ``about`` is. ``nearest`` are params that the new one may be like, one of each group, the likeliest first;
    ``groups`` those that states treat alike, or what it was said to be like.
    """

    def __init__(
        self,
        about: LeafPath,
        nearest: Sequence[LeafPath],
        groups: Sequence[Sequence[LeafPath]],
    ) -> None:
        super().__init__(about)
        self.about, self.nearest, self.groups = about, nearest, groups

    def problem(self, new: Sequence[LeafPath], *, takes_like: bool) -> Problem:
        """The question, for all these params; ``takes_like``: the edit has a field that answers it."""
        first, *others = (quoted(folded(map(str, paths)), 2) for paths in self.groups)
        if others:
            why = f"they keep other slots for {first} than for {' and '.join(others)}"
        else:
            why = (
                f"{first} has another number of axes, by which states that leave out some params choose them"
                " most often"
            )
        fix = worded("`add` it {like} a param with as many axes, which they treat alike")
        if self.nearest:
            named = (Text(FieldName("like", path.exact_pattern)) for path in self.nearest)
            first = "" if takes_like else worded("`add` them before, by the same {with}, and ")
            fix = Text(first, "say which param it is like: ", joined(" or ", named))
        return Problem(
            f"which states of the optimizer would have {quoted(folded(map(str, new)), 3)} is not known",
            why=why,
            fix=fix,
            path=folded(map(str, new))[0],
            field="like" if takes_like else "at",
        )


class Siblings:
    """The params of a draft, by what states keep for them: looked at once, however many new ones are asked about."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._roots = list(dict.fromkeys(slot.root for slot in draft.slots.values()))
        self._groups: dict[LeafPath, dict[_Kept, _Alike]] = {}

    def model_of(self, new: LeafPath, spec: LeafSpec, like: LeafPath | None) -> LeafPath | None:
        """The param whose slots tell those of a new one; None if no state mirrors what stands there.

        Raises:
            UnknownStates: other params differ in what states keep for them.
        """
        root = max((r for r in self._roots if new.is_below(r)), key=len, default=None)
        if root is None or not is_param(spec):
            return None
        groups = self._groups_below(root)
        if like is not None and like.is_below(root):
            model = self._draft.leaves[like].spec
            if len(model.shape) != len(spec.shape) and len(groups) > 1:
                raise self._unknown_by_axes(groups, new, spec, like)
            if model.dtype == spec.dtype:
                return like
            alike = groups.get(self._kept_for(like))
            best = like if alike is None else alike.nearest(new, spec)
            return best if self._draft.leaves[best].spec.dtype == spec.dtype else like
        if len(groups) > 1:
            nearest = [alike.nearest(new, spec) for alike in groups.values()]
            best = _Alike(nearest, self._draft).nearest(new, spec)
            nearest.sort(key=lambda path: path != best)
            raise UnknownStates(root, nearest, [alike.params for alike in groups.values()])
        return next((alike.nearest(new, spec) for alike in groups.values()), None)

    def _groups_below(self, root: LeafPath) -> dict[_Kept, _Alike]:
        """The params below a root that are no slots, those that states treat alike together."""
        if root not in self._groups:
            groups: dict[_Kept, list[LeafPath]] = {}
            for path, leaf in self._draft.leaves.items():
                if path.is_below(root) and is_param(leaf.spec) and path not in self._draft.slots:
                    groups.setdefault(self._kept_for(path), []).append(path)
            self._groups[root] = {k: _Alike(paths, self._draft) for k, paths in groups.items()}
        return self._groups[root]

    def _kept_for(self, param: LeafPath) -> _Kept:
        return frozenset(
            (slot.node, slot.name, slot.relation == "hole")
            for depth in range(len(param) + 1)
            for slot in self._draft.slots_of.get(LeafPath(param[:depth]), ())
        )

    def _unknown_by_axes(
        self, groups: Mapping[_Kept, _Alike], new: LeafPath, spec: LeafSpec, like: LeafPath
    ) -> UnknownStates:
        """The number of axes, by which states often choose their params, is another one here."""
        every = (path for alike in groups.values() for path in alike.params)
        fitting = [
            path for path in every if len(self._draft.leaves[path].spec.shape) == len(spec.shape)
        ]
        nearest = [_Alike(fitting, self._draft).nearest(new, spec)] if fitting else []
        return UnknownStates(like, nearest, [[like]])


class _Alike:
    """Params that states treat alike, and which of them is most like a new one: by dtype, then by the number of axes,
    then by its own key, then by the keys above it that it shares; the first of several.
    """

    def __init__(self, params: Sequence[LeafPath], draft: Draft) -> None:
        self.params = params
        self._draft = draft
        self._first: dict[int, dict[tuple[Any, ...], LeafPath]] = {}
        """By which of the three do not matter: by what the others are, the first param below each node."""

    def nearest(self, new: LeafPath, spec: LeafSpec) -> LeafPath:
        for ignored in range(8):
            first = self._below_each_node(ignored)
            kind = _kind(new, spec, ignored)
            for depth in range(len(new), -1, -1):
                if (found := first.get((kind, new[:depth]))) is not None:
                    return found
        raise AssertionError("there is one at least")

    def _below_each_node(self, ignored: int) -> dict[tuple[Any, ...], LeafPath]:
        if ignored not in self._first:
            first = self._first[ignored] = {}
            for path in self.params:
                kind = _kind(path, self._draft.leaves[path].spec, ignored)
                for depth in range(len(path) + 1):
                    first.setdefault((kind, path[:depth]), path)
        return self._first[ignored]


def _kind(path: LeafPath, spec: LeafSpec, ignored: int) -> tuple[Any, ...]:
    """Dtype, number of axes and own key; those of which the bit is set in ``ignored``, from the left, are left out."""
    what = (spec.dtype, len(spec.shape), path[-1:])
    return tuple(one for bit, one in zip((4, 2, 1), what, strict=True) if not ignored & bit)
