"""Which param a new one is like, as far as states of the optimizer are concerned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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

    It is a question, asked once for all params of which it is one. ``nearest`` are params that the new one may be like,
    one of each group, the likeliest first; ``groups`` those that states treat alike, or what it was said to be like.
    """

    def __init__(
        self, nearest: tuple[LeafPath, ...], groups: tuple[tuple[LeafPath, ...], ...]
    ) -> None:
        super().__init__(nearest, groups)
        self.nearest, self.groups = nearest, groups

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
    """The params of a draft, by what states keep for them."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._roots = list(dict.fromkeys(slot.root for slot in draft.slots.values()))
        self._kept: dict[LeafPath, _Kept] = {}

    def model_of(self, new: LeafPath, spec: LeafSpec, like: LeafPath | None) -> LeafPath | None:
        """The param whose slots tell those of a new one; None if no state mirrors what stands there.

        Raises:
            UnknownStates: other params differ in what states keep for them.
        """
        root = max((r for r in self._roots if new.is_below(r)), key=len, default=None)
        if root is None or not is_param(spec):
            return None
        if like is not None and like.is_below(root):
            others = [p for p in self._params(root) if self._kept_for(p) == self._kept_for(like)]
            if len(self._draft.leaves[like].spec.shape) != len(spec.shape):
                self._refuse_choice(new, spec, like, root)
            same = self._draft.leaves[like].spec.dtype == spec.dtype
            return like if same else _nearest([like, *others], new, spec, self._draft)
        params = self._params(root)
        groups: dict[_Kept, list[LeafPath]] = {}
        for path in params:
            groups.setdefault(self._kept_for(path), []).append(path)
        if len(groups) > 1:
            nearest = [_nearest(paths, new, spec, self._draft) for paths in groups.values()]
            best = _nearest(nearest, new, spec, self._draft)
            nearest.sort(key=lambda path: path != best)
            raise UnknownStates(tuple(nearest), tuple(map(tuple, groups.values())))
        return _nearest(params, new, spec, self._draft) if params else None

    def _params(self, root: LeafPath) -> list[LeafPath]:
        mirrored = (path for path in self._draft.leaves if path.is_below(root))
        return [
            path
            for path in mirrored
            if is_param(self._draft.leaves[path].spec) and path not in self._draft.slots
        ]

    def _kept_for(self, param: LeafPath) -> _Kept:
        if param not in self._kept:
            self._kept[param] = frozenset(self._fields_of(param))
        return self._kept[param]

    def _fields_of(self, param: LeafPath) -> Iterator[tuple[LeafPath, str, bool]]:
        for depth in range(len(param) + 1):
            for slot in self._draft.slots_of.get(LeafPath(param[:depth]), ()):
                yield slot.node, slot.name, slot.relation == "hole"

    def _refuse_choice(self, new: LeafPath, spec: LeafSpec, like: LeafPath, root: LeafPath) -> None:
        """See that the number of axes, by which states often choose their params, does not matter here."""
        groups = {self._kept_for(path) for path in self._params(root)}
        if len(groups) > 1:
            alike = [
                path
                for path in self._params(root)
                if len(self._draft.leaves[path].spec.shape) == len(spec.shape)
            ]
            nearest = (_nearest(alike, new, spec, self._draft),) if alike else ()
            raise UnknownStates(nearest, ((like,),))


def _nearest(params: list[LeafPath], new: LeafPath, spec: LeafSpec, draft: Draft) -> LeafPath:
    """Of params that states treat alike, the one that is most like the new one."""

    def likeness(path: LeafPath) -> tuple[bool, bool, bool, int]:
        other = draft.leaves[path].spec
        common = next(
            (n for n, pair in enumerate(zip(path, new, strict=False)) if pair[0] != pair[1]), 0
        )
        return (
            other.dtype == spec.dtype,
            len(other.shape) == len(spec.shape),
            path[-1:] == new[-1:],
            common,
        )

    return max(params, key=likeness)
