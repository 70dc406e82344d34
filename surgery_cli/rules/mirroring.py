"""Whether the state of an optimizer belongs to the params, as a resumed training needs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from surgery_cli.draft.check import Apart
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.mirrors import is_param
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.rules.contract import Named, Rule, refuse_false
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.lists import quoted
from surgery_cli.words.quantities import counted


class OptimizerMirrorsParams(Rule, frozen=True):
    """Every param that is named has its twins, each in its place and of its shape, and no twin is without a param.

    A param of which the optimizer keeps nothing but empty places, as ``optax.masked`` leaves them, is set apart.
    """

    optimizer_mirrors_params: Annotated[
        bool,
        Meta(
            description="Each param that is named has all its twins in the optimizer state, in their places and shapes,"
            " in every tree of twins, and no twin is left over; params that are not trained are left out with `except`."
            " Params of which the optimizer keeps nothing but an empty place (masked) do not break it, and are named"
            " apart, as are those that one tree of several lacks in a format that keeps no empty places."
        ),
    ]

    needs_values: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_false(self)

    @property
    def text(self) -> str:
        return "optimizer mirrors params"

    def breach_of_selection(self, named: Named) -> str:
        survey = named.scene.survey_of_draft(named.draft)
        twins = list(filter(_is_twin, survey.slots.values()))
        if not survey.open_questions and all(map(_is_empty, twins)):
            return "there is no optimizer state that mirrors any params"
        roots = {slot.root for slot in twins}
        if twins and not any(_is_asked(path, named, survey, roots) for path in named.leaves):
            return "no param is among them that the optimizer trains: params are named, not what mirrors them"
        return ""

    def absent(self, named: Named) -> Iterator[tuple[LeafPath, str]]:
        survey = named.scene.survey_of_draft(named.draft)
        questions = [one for one in survey.open_questions if one.is_about(named.leaves)]
        for question in questions:
            yield question.concerns[0], f"{question.problem.what}: {question.problem.why}"
        if not questions:
            yield from _bare(named, survey)

    def set_apart(self, named: Named) -> Iterator[Apart]:
        survey = named.scene.survey_of_draft(named.draft)
        trees = _Trees(filter(_is_twin, survey.slots.values()), named)
        masked: list[str] = []
        untold: dict[LeafPath, list[str]] = {}
        for path in named.leaves:
            if not _is_asked(path, named, survey, trees.roots):
                continue
            found = trees.without(path)
            if not found and not trees.have_twin_of(path) and trees.leave_out(path):
                masked.append(str(path))
            for tree, is_sure in found:
                if not is_sure:
                    untold.setdefault(tree.node, []).append(str(path))
        if masked:
            what = f"{counted(len(masked), 'param')} of which the optimizer keeps nothing (masked)"
            yield Apart(what=what, leaves=masked)
        for node, leaves in untold.items():
            why = "masked or lost: this state keeps no empty places that would tell"
            what = f"{counted(len(leaves), 'param')} without a twin in '{node}' ({why})"
            yield Apart(what=what, leaves=leaves)


class _Tree(msgspec.Struct, eq=False):
    """What an optimizer keeps of params in one field of a state: of which there is a twin, of which an empty place."""

    node: LeafPath
    state: LeafPath
    root: LeafPath
    stores_empty: bool
    """True if what is empty was stored with the state, so that what was left out has its place."""
    twins: set[LeafPath] = msgspec.field(default_factory=set)
    empty: set[LeafPath] = msgspec.field(default_factory=set)
    leaves_out: bool = False
    """True if some param is left out with an empty place: then each is."""

    def leaves_out_any(self, above: Iterable[LeafPath]) -> bool:
        return not self.empty.isdisjoint(above)


class _Trees:
    """The trees of twins. Those of one optimizer are of the same params, but for empty places."""

    def __init__(self, twins: Iterable[Slot], named: Named) -> None:
        leaves = named.draft.leaves
        empty_leaves = [path for path, one in leaves.items() if one.spec.kind is LeafKind.EMPTY]
        empty: dict[LeafPath, set[LeafPath]] = {}
        found: dict[tuple[LeafPath, str], _Tree] = {}
        self.roots: set[LeafPath] = set()
        for slot in twins:
            self.roots.add(slot.root)
            if _is_empty(slot):
                empty.setdefault(slot.node, set()).add(slot.param)
                continue
            key = slot.node, slot.name
            if key not in found:
                # an index is kept by formats alone that keep what is empty, too
                stores = any(isinstance(part, int) for part in slot.node) or any(
                    path.is_below(slot.whole_state) for path in empty_leaves
                )
                found[key] = _Tree(slot.node, slot.state, slot.root, stores)
            found[key].twins.add(slot.param)
        self._trees = list(found.values())
        for tree in self._trees:
            tree.empty = empty.get(tree.node, set())
            tree.leaves_out = any(
                path not in leaves or is_param(leaves[path].spec) for path in tree.empty
            )
        self._meet: dict[tuple[int, int], bool] = {}

    @property
    def are_any(self) -> bool:
        return bool(self._trees)

    def have_twin_of(self, path: LeafPath) -> bool:
        return any(path in tree.twins for tree in self._trees)

    def leave_out(self, path: LeafPath) -> bool:
        """True if any tree has an empty place of a param."""
        above = _from_root(path)
        return any(tree.leaves_out_any(above) for tree in self._trees)

    def without(self, path: LeafPath) -> list[tuple[_Tree, bool]]:
        """The trees without a twin and an empty place of a param, and whether they surely must have one."""
        having = [tree for tree in self._trees if path in tree.twins]
        if len(having) == len(self._trees):
            return []
        above = _from_root(path)
        found: list[tuple[_Tree, bool]] = []
        for tree in self._trees:
            if path in tree.twins or not path.is_below(tree.root) or tree.leaves_out_any(above):
                continue
            if tree.leaves_out or any(tree.state == other.state for other in having):
                found.append((tree, True))
            elif any(self._are_of_one(tree, other) for other in having):
                found.append((tree, tree.stores_empty))
        return found

    def _are_of_one(self, a: _Tree, b: _Tree) -> bool:
        """False for trees that have no param in common: those of two optimizers, each with params of its own."""
        pair = id(a), id(b)
        if pair not in self._meet:
            self._meet[pair] = not a.twins.isdisjoint(b.twins)
        return self._meet[pair]


def _bare(named: Named, survey: OptimizerSurvey) -> Iterator[tuple[LeafPath, str]]:
    """The params that lack a twin and an empty place: in every tree, or in some of an optimizer that has others."""
    trees = _Trees(filter(_is_twin, survey.slots.values()), named)
    for path in named.leaves:
        if not _is_asked(path, named, survey, trees.roots):
            continue
        lacking = [tree.node for tree, is_sure in trees.without(path) if is_sure]
        if lacking:
            yield path, f"it has no twin in {quoted(lacking, 3)}"
        elif trees.are_any and not trees.have_twin_of(path) and not trees.leave_out(path):
            yield path, "no optimizer state has anything for it"


def _is_asked(path: LeafPath, named: Named, survey: OptimizerSurvey, roots: set[LeafPath]) -> bool:
    """True of a param in a tree of which there are twins."""
    is_below = any(map(path.is_below, roots)) and path not in survey.slots
    return is_below and is_param(named.draft.leaves[path].spec)


def _from_root(path: LeafPath) -> list[LeafPath]:
    """A leaf and the nodes above it."""
    return [LeafPath(path[:depth]) for depth in range(len(path) + 1)]


def _is_twin(slot: Slot) -> bool:
    return slot.in_optimizer


def _is_empty(slot: Slot) -> bool:
    return slot.relation == "hole"
