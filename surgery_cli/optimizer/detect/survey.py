"""Finds the twins of params: in optimizer state by its structure, beside it by shape; and the clocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from surgery_cli.draft.slots import Clock, Slot
from surgery_cli.errors import Problem
from surgery_cli.optimizer.detect.findings import Findings
from surgery_cli.optimizer.detect.groups import Unsure
from surgery_cli.optimizer.detect.mirrors import Branch, Mirror, Node, branches, path_of
from surgery_cli.optimizer.detect.networks import Networks
from surgery_cli.optimizer.detect.params_root import fast_and_slow, is_optimizer_name, scopes
from surgery_cli.optimizer.detect.slot_hints import SlotHint, hints_from, refuse_unobeyed
from surgery_cli.optimizer.detect.stated_kind import NamedKinds
from surgery_cli.optimizer.detect.untrained import copies_of_trained
from surgery_cli.optimizer.detect.walk import Signal, Walk
from surgery_cli.optimizer.knowledge.kinds import SLOW
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.advice import Aside, FieldName, Text
from surgery_cli.words.lists import listed, quoted

__all__ = ["OptimizerSurvey", "Question", "SlotHint", "Unsure", "survey"]


_DRIVE_NO_SLOT: Final = ("nothing", "counter")
"""What a clock may drive that no slot depends on."""


class Question(msgspec.Struct, frozen=True):
    """Something that only the user can say, and the nodes of params whose edits need the answer."""

    problem: Problem
    concerns: tuple[LeafPath, ...]

    def is_about(self, params: Collection[LeafPath]) -> bool:
        """True if an edit of ``params`` needs the answer."""
        return any(path.is_below(node) for node in self.concerns for path in params)


class OptimizerSurvey(msgspec.Struct, frozen=True, kw_only=True):
    """What the metadata of a tree says of its optimizer state.

    ``slots`` include holes (relation ``hole``). ``hyperparams`` say what a stored number is,
    ``running`` at what a number starts that a state keeps with its slots, ``nonnegative`` which numbers beside slots
    are never below 0, ``infinite`` which are infinite until something was measured.
    ``shared`` are the floating numbers by which
    all slots below a node go, with that node: running sums, estimates, settings. ``unsure`` lists slots
    whose power is not known; they are kept. ``open_questions`` matter once an edit touches what they concern.
    ``family`` names each optimizer node.
    """

    params_roots: tuple[LeafPath, ...] = ()
    slots: dict[LeafPath, Slot] = {}
    clocks: dict[LeafPath, Clock] = {}
    hyperparams: dict[LeafPath, str] = {}
    running: dict[LeafPath, float] = {}
    nonnegative: set[LeafPath] = set()
    infinite: set[LeafPath] = set()
    shared: dict[LeafPath, LeafPath] = {}
    unsure: list[Unsure] = []
    open_questions: list[Question] = []
    family: dict[LeafPath, str] = {}

    @property
    def questions(self) -> list[Problem]:
        """Every open question as a problem."""
        return [question.problem for question in self.open_questions]

    @property
    def telling_pairs(self) -> dict[LeafPath, list[tuple[LeafPath, LeafPath]]]:
        """For each node of which values rule kinds out: its slots to read, (mu, nu) for every param."""
        found: dict[LeafPath, dict[str, dict[LeafPath, LeafPath]]] = {}
        for unsure in self.unsure:
            if unsure.by_values:
                named = found.setdefault(unsure.owner, {"mu": {}, "nu": {}})
                for slot in map(self.slots.__getitem__, unsure.slots):
                    named.setdefault(slot.name, {})[slot.param] = slot.path
        return {
            owner: pairs
            for owner, named in found.items()
            if (
                pairs := [(mu, named["nu"][p]) for p, mu in named["mu"].items() if p in named["nu"]]
            )
        }

    def questions_about(self, params: Iterable[LeafPath]) -> list[Problem]:
        """The questions that an edit of ``params`` needs answered."""
        edited = list(params)
        return [question.problem for question in self.open_questions if question.is_about(edited)]


def survey(
    tree: TreeSpec,
    *,
    params: str | None = None,
    kind: str | Mapping[str, str] | None = None,
    slots: Mapping[str, Mapping[str, object] | SlotHint] | None = None,
) -> OptimizerSurvey:
    """Find params, slots and clocks from metadata alone.

    ``params`` is the printed path of the params' root. ``kind`` names the optax factory of the optimizer (or maps the
    printed path of a node to one) and settles powers; ``slots`` says what unknown trees are.

    Raises:
        PlanError: ``params``, ``kind`` or ``slots`` name what the tree does not have.
    """
    top = branches(tree)
    hints = hints_from(slots or {}, tree)
    named = NamedKinds(kind)
    found = OptimizerSurvey()
    pairs = scopes(top, params)
    roots_known = [root for _, root in pairs]
    networks = Networks(tree, top, roots_known, hints, are_said=params is not None)
    walks: list[tuple[Branch, Branch | None, bool]] = [
        *((scope, root, False) for scope, root in pairs),
        *((state, network, True) for state, network in networks.scopes_besides(pairs)),
    ]
    roots: list[LeafPath] = []
    for scope, root, inside in walks or [(top, None, True)]:
        apart: set[LeafPath] = set()
        if root is not None and not inside:
            apart = networks.apart_from(path_of(root))
            apart |= {path_of(other) for other, _ in pairs} - {path_of(scope)}
        walk = Walk(tree, top, root, named, hints, apart)
        if root is not None:
            roots.append(path_of(root))
            double = fast_and_slow(root, tree)
            if double is not None:
                roots[-1] = double[0].path
                _slow_weights(walk, double[0].path, double[1])
        walk.visit(scope, Signal(-1), inside=inside)
        walk.ask_for_strangers()
        _gather(walk.found, tree, found)
    asked = networks.questions(found.slots.values())
    undecided = {path for _, concerned in asked for path in concerned}
    sure = [one for one in networks.trees if path_of(one) not in undecided]
    _gather(copies_of_trained(tree, sure, found.slots), tree, found)
    found.open_questions.extend(Question(problem, trees) for problem, trees in asked)
    if not walks and not asked:
        found.open_questions.extend(_where_params_stand(top, found.family))
    named.raise_if_unused(found.family)
    refuse_unobeyed(hints, found.slots.values(), [one.path or "" for one in found.questions])
    return msgspec.structs.replace(
        found,
        params_roots=tuple(dict.fromkeys(roots)),
        slots=networks.without_copies_of_trained(found.slots),
    )


def _where_params_stand(top: Branch, family: Mapping[LeafPath, str]) -> list[Question]:
    """There is optimizer state, and several nodes that may be its params, or none: an edit of them needs to know."""
    if not family or not isinstance(top, Node):
        return []
    others = [
        child.path
        for key, child in top.children.items()
        if isinstance(child, Node)
        and not is_optimizer_name(key)
        and not any(node.is_below(child.path) for node in family)
    ]
    if not others or () in family:
        return []
    problem = Problem(
        "cannot tell where the params stand",
        why="the optimizer state may belong to " + quoted(others, 6),
        fix="say which with "
        + listed((f"--params {path}" for path in others[:3]), word="or", mark="`")
        + Text(Aside(FieldName("params", str(others[0])))),
        field="params",
    )
    return [Question(problem, tuple(others))]


def _slow_weights(walk: Walk, fast: LeafPath, slow: Branch) -> None:
    """Lookahead keeps its slow weights beside the fast ones, inside the params."""
    match = walk.matching.find(slow)
    if isinstance(match, Mirror) and match.root == fast:
        walk.found.add(match, "slow", SLOW, Signal(1), "lookahead")


def _gather(walked: Findings, tree: TreeSpec, found: OptimizerSurvey) -> None:
    """Turn what one walk found into slots and clocks."""
    driven: dict[LeafPath, list[LeafPath]] = {}
    for group in walked.groups:
        clocks = walked.clocks.get(group.owner, {})
        driving = tuple(p for p, (drives, _) in clocks.items() if drives not in _DRIVE_NO_SLOT)
        slots, unsure = group.slots(tree, driving)
        # params may stand in a state
        kept = {slot.path: slot for slot in slots if slot.path != slot.param}
        found.slots.update(kept)
        paths = (slot.path for slot in kept.values() if slot.relation != "hole")
        driven.setdefault(group.owner, []).extend(paths)
        about = () if unsure is None else tuple(path for path in unsure.slots if path in kept)
        if unsure is not None and about:
            found.unsure.append(msgspec.structs.replace(unsure, slots=about))
    for owner, clocks in walked.clocks.items():
        for path, (drives, fresh) in clocks.items():
            if drives == "nothing" and path in found.clocks:
                continue
            own = () if drives in _DRIVE_NO_SLOT else tuple(driven.get(owner, ()))
            found.clocks[path] = Clock(path=path, drives=drives, slots=own, fresh=fresh)
    found.hyperparams.update(walked.hyperparams)
    found.running.update(walked.running)
    found.nonnegative.update(walked.nonnegative)
    found.infinite.update(walked.infinite)
    found.shared.update(walked.shared)
    found.family.update(walked.family)
    found.open_questions.extend(Question(problem, nodes) for problem, nodes in walked.questions)
