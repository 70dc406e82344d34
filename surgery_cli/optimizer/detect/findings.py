"""What a walk through optimizer state finds, gathered: groups of slots, clocks, numbers, questions."""

from __future__ import annotations

from collections.abc import Sequence

from surgery_cli.draft.placeholders import NODE, slots_line
from surgery_cli.errors import Problem
from surgery_cli.optimizer.detect.groups import Group, Signal
from surgery_cli.optimizer.detect.mirrors import Mirror
from surgery_cli.optimizer.knowledge.kinds import Field
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import Aside, FieldName, InPlan, Text, worded
from surgery_cli.words.lists import listed, quoted


class Findings:
    """Groups of slots, and what else the state keeps, by path.

    ``clocks`` are by the node that owns them: what each drives, and at what it starts. ``running`` gives the initial
    values of numbers beside slots, ``nonnegative`` names those that are never below 0,
    ``infinite`` those that start so, ``shared`` the node below which
    slots go by a number, ``family`` names the optimizer of every node. ``questions`` go with the nodes of params that
    they concern.
    """

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.clocks: dict[LeafPath, dict[LeafPath, tuple[str, int]]] = {}
        self.hyperparams: dict[LeafPath, str] = {}
        self.running: dict[LeafPath, float] = {}
        self.nonnegative: set[LeafPath] = set()
        self.infinite: set[LeafPath] = set()
        self.shared: dict[LeafPath, LeafPath] = {}
        self.family: dict[LeafPath, str] = {}
        self.questions: list[tuple[Problem, tuple[LeafPath, ...]]] = []

    def add(
        self, match: Mirror, name: str, field: Field | None, signal: Signal, family: str,
        *, owner: LeafPath | None = None, in_optimizer: bool = True,
    ) -> Group:  # fmt: skip
        """Add a group of one field whose meaning does not depend on a choice of kinds."""
        group = Group(
            owner=match.node if owner is None else owner,
            name=name,
            family=family,
            mirror=match,
            fields={family: field},
            relation=match.relation or "same",
            signal=signal,
            in_optimizer=in_optimizer,
        )
        self.groups.append(group)
        return group

    def add_clock(self, owner: LeafPath, path: LeafPath, drives: str, fresh: int = 0) -> None:
        """Add a clock of the state at ``owner``."""
        self.clocks.setdefault(owner, {})[path] = drives, fresh

    def ask(
        self,
        path: LeafPath,
        candidates: list[LeafPath],
        root: LeafPath | None,
        odd: Sequence[tuple[LeafPath, LeafPath]] = (),
    ) -> None:
        """Keep a question: to which of ``candidates``, else to what below ``root``, a tree belongs.

        ``odd`` are nodes of the tree that no param has, each with the one node of params that it may belong to.
        """
        concerns = tuple(candidates) or (() if root is None else (root,))
        if not concerns:
            return
        if candidates:
            why = f"these have its structure and shapes: {quoted(candidates, 4)}"
            fix: str = worded(
                "add {}, with the one that it belongs to", InPlan(slots_line(path, of=NODE))
            )
        elif odd:
            here, there = odd[0]
            why = f"'{here}' has no param of that name, and '{there}' has nothing at '{path}'"
            fix = (
                f"`surgery rename SRC DST {here} --to {here.parent / there[-1:]}` first, if they belong together; "
                "or say `ignore: true` of it in `slots:` of a plan: then no edit of params touches it"
            )
        else:
            why = f"its names and shapes do not follow those of the params ('{root or '.'}')"
            fix = worded(
                "add {}, with the node of params that it mirrors leaf by leaf, and how it goes with their"
                " size (-1 gradients, -2 their squares, 1 params); or `ignore: true` instead, and no edit"
                " of params touches it",
                InPlan(slots_line(path, of=NODE, power="K")),
            )
        what = f"cannot tell which params '{path}' belongs to"
        self.questions.append((Problem(what, why, fix, str(path)), concerns))


def whose_state(state: LeafPath, trees: Sequence[LeafPath], *, needs_root: bool) -> Problem:
    """The question whose a state is; ``needs_root``: nothing but where the edited params stand is missing."""
    if needs_root:
        ways = listed((f"--params {path}" for path in trees[:3]), word="or", mark="`")
        fix = f"say which are trained by it: {ways}" + Text(
            Aside(FieldName("params", str(trees[0])))
        )
    else:
        fix = worded(
            "add {}, with the one that it belongs to; or `ignore: true` instead, and no edit of params touches it",
            InPlan(slots_line(state, of=NODE)),
        )
    return Problem(
        f"cannot tell which params '{state}' belongs to",
        why=f"it may be the optimizer state of {quoted(trees, 6)}",
        fix=fix,
        path=str(state),
        field="params" if needs_root else "slots",
    )
