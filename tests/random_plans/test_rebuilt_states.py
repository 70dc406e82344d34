"""Whatever edits of places do to an optimizer's state: the next edit sees what a second plan would see.

From metadata alone, over every state of optax: a plan of two edits is refused where the second one is refused on the
result of the first, and does the same where it is not, but where it says that a second plan could not. ``make plans``
draws as many others.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from functools import cache
from typing import Any

import pytest

from surgery_cli.draft.expression import Made, parts
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.resolution import resolve
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from tests.hand_built_trees import HandBuilt, no_donor
from tests.optimizer.optax_registry import OPTIMIZERS, train_state

COUNT = int(os.environ.get("PLANS", "300")) * 2
SEED = int(os.environ.get("PLANS_SEED", "1"))
PARAMS = LeafPath(("params",))
ASKED = {"flatten_adam", "galore"}
"""States of which only the user can say what they belong to, before anything moves."""
OPEN = "cannot tell which params"
"""What may be asked of a result with a copied state: who sees that alone does not know what was copied from where."""

NEVER_MISREAD = {"adafactor", "ldog"}
"""States no part of which looks like the params."""

MISREAD = "later plans take it for"
"""Of slots that were put outside of their state: the plan that did so still knows what they are."""

tree_of = cache(train_state)


class Source(HandBuilt):
    """A tree as a source."""

    def __init__(self, tree: TreeSpec) -> None:
        super().__init__({})
        self.tree = tree


def drawn(draw: random.Random, tree: TreeSpec) -> dict[str, Any]:
    """An edit of places that names any nodes of the tree, sensible or not."""
    nodes = sorted({LeafPath(path[:n]) for path in tree for n in range(1, len(path) + 1)}, key=str)
    node, other = str(draw.choice(nodes)), str(draw.choice(nodes))
    match draw.choice(["rename", "rename", "rename", "copy", "delete", "keep", "moves"]):
        case "delete":
            return {"op": "delete", "at": node}
        case "keep":
            return {"op": "keep", "at": sorted({node, other, str(draw.choice(nodes))})}
        case "moves":
            return {"op": "rename", "moves": {node: other, other: node}}
        case op:
            last = draw.choice(["", "new", "0", "3", "value", "params", "new/deep", node[-1:]])
            above = draw.choice([other, other, ""])
            return {"op": op, "at": node, "to": f"{above}/{last}".strip("/") or "new"}


def drafted(tree: TreeSpec, edits: list[dict[str, Any]], params: str | None = None) -> Draft:
    plan = plan_from_document({"edits": edits, **({"params": params} if params else {})})
    return resolve(plan, Source(tree), no_donor, surveyed=survey(tree, params=params))


def said(draft: Draft) -> dict[LeafPath, Any]:
    """What becomes of every leaf, by where it stands."""
    found = {}
    for path, leaf in draft.leaves.items():
        kernels = [part.kernel for part in parts(leaf.recipe) if isinstance(part, Made)]
        done = [repr(kernel) for kernel in kernels if kernel.name != "nothing"]
        found[path] = (leaf.policy if done else "", done)
    return found


def attempted(*given: Any) -> tuple[dict[LeafPath, Any] | None, str]:
    try:
        return said(drafted(*given)), ""
    except PlanError as refused:
        return None, str(refused)


def compared(draw: random.Random, name: str) -> str:
    """What came of it; AssertionError where one plan of two edits is not two plans."""
    tree = tree_of(name)
    edit = drawn(draw, tree)
    try:
        first = drafted(tree, [edit])
    except PlanError:
        return "refused"
    roots = {slot.root for slot in first.slots.values() if slot.in_optimizer}
    moved = roots if len(roots) == 1 and roots != {PARAMS} else set()
    root, params = next(iter(moved or {PARAMS})), str(*moved) or None
    named = [path for path in first.leaves if path.is_below(root)] or list(first.leaves)
    second = {"op": "rescale", "at": str(draw.choice(named)), "by": 2.0}
    second |= draw.choice(
        [{}, {"optimizer": "keep"}, {"optimizer": "reset"}, {"optimizer": "warm"}]
    )
    together, refused = attempted(tree, [edit, second])
    apart, asked = attempted(first.tree, [second], params)
    if apart is None and together is not None and edit["op"] == "copy" and OPEN in asked:
        return "asked"
    if together != apart and any(MISREAD in str(note) for note in first.notes):
        return "noted"
    if together and apart and edit["op"] == "copy":
        fresh = survey(first.tree, params=params).slots
        other = [path for path in together if together[path] != apart[path]]
        if other and all(path in fresh and fresh[path].unsure_because for path in other):
            return "unsure"  # kept, and a note of the second plan says so
    assert together == apart, (name, edit, second, refused, asked)
    if edit["op"] != "keep":
        new = {q.what for q in survey(first.tree, params=params).questions}
        if edit["op"] == "copy":
            new = {what for what in new if OPEN not in what}
        assert new <= {q.what for q in survey(tree).questions}, (name, edit)
    return "refused again" if apart is None else "done"


@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - ASKED))
@pytest.mark.parametrize("to", ["backup", "0", "new/deep"])
def test_a_copy_of_a_state_is_taken_for_no_network(name: str, to: str) -> None:
    """Under a name that tells nothing: the state that it was copied from belongs to the same params as before."""
    tree = tree_of(name)
    slots = survey(tree).slots
    seen = survey(drafted(tree, [{"op": "copy", "at": "opt_state", "to": to}]).tree)
    assert {path: slot.param for path, slot in seen.slots.items() if path in slots} == {
        path: slot.param for path, slot in slots.items()
    }
    assert not any(path.is_below(PARAMS) for path in seen.slots.keys() - slots.keys())


@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - ASKED))
@pytest.mark.parametrize("op", ["copy", "rename"])
def test_slots_outside_of_their_state_are_edited_as_no_copy_of_the_params(
    name: str, op: str
) -> None:
    """Second moments would get what is put into a param; a later plan cannot tell, and that is said."""
    tree = tree_of(name)
    slots = survey(tree).slots
    nodes = {s.node for s in slots.values() if s.in_optimizer and not s.is_params_like}
    param = min((path for path in tree if path.is_below(PARAMS) and tree[path].shape), key=str)
    pad = {"op": "pad", "at": str(param), "axis": 0, "after": 1, "value": 7.0}
    judged = 0
    for node in sorted(nodes, key=str):
        moved = {"op": op, "at": str(node), "to": "new"}
        try:
            first = drafted(tree, [moved])
        except PlanError:
            continue
        found = survey(first.tree).slots
        is_misread = any(
            (slot.param if slot.in_optimizer else path)[:1] == ("new",)
            for path, slot in found.items()
        )
        assert is_misread == any(f"'new' has the values of '{node}'" in str(n) for n in first.notes)
        if is_misread:
            judged += 1
            after, _ = attempted(tree, [moved, pad])
            for path, (policy, _) in (after or {}).items():
                assert path[:1] != ("new",) or policy != "carried", (path, policy)
    assert judged or not nodes or op == "rename" or name in NEVER_MISREAD


def test_the_next_edit_sees_what_a_second_plan_would_see() -> None:
    draw, tally = random.Random(SEED), Counter[str]()
    names = sorted(OPTIMIZERS.keys() - ASKED)
    for number in range(COUNT):
        tally[compared(draw, names[number % len(names)])] += 1
    assert tally["done"] > COUNT / 10
