"""Plans of up to six edits over trees of every kind do what flat NumPy says, in every layout, or are refused.

``PLANS=2000 PLANS_SEED=7 pytest tests/random_plans -n 0 -s`` (or ``make plans N=2000 SEED=7``) draws as many others.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path as File
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from surgery_cli import surgery
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, SurgeryError, ValueRefusal
from surgery_cli.operations.base import Operation
from surgery_cli.operations.table import operations
from surgery_cli.planning.reading import read_plan
from surgery_cli.proof.record_places import record_path
from surgery_cli.resolution.doubts import Doubts, may_meet
from surgery_cli.resolution.stage import Stage
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.random_plans import judge, reference
from tests.random_plans.drawers import DRAWERS
from tests.random_plans.layouts import LAYOUTS, Layout
from tests.random_plans.model import Path, Refused, State, Words, is_below, printed
from tests.random_plans.optimizers import TOLD
from tests.random_plans.trees import is_storable, samples
from tests.random_plans.world import World

PLANS = int(os.environ.get("PLANS", "21"))
SEED = int(os.environ.get("PLANS_SEED", "1"))
MOST_EDITS = 6


def test_every_operation_of_the_table_is_drawn_and_has_a_reference() -> None:
    assert set(DRAWERS) == set(reference.OPERATIONS) == set(operations())


@pytest.fixture(autouse=True)
def _leaves_come_where_edits_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every edit of every plan: leaves come to stand where an edit that failed is said to bring them, if any."""
    edited = Stage.edited

    def watched(self: Stage, draft: Draft, edit: Operation, index: int) -> Draft:
        after = edited(self, draft, edit, index)
        came = after.leaves.keys() - draft.leaves.keys()
        came -= {LeafPath(path[:n]) for path in draft.leaves for n in range(len(path))}  # emptied
        doubts = Doubts()
        doubts.failed(edit, None, draft)
        places = [*doubts.places(draft), *doubts.places(after)] if came else []
        for path in came:
            assert any(may_meet(path.exact_pattern, place) for place in places), (edit, path)
        return after

    monkeypatch.setattr(Stage, "edited", watched)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_random_plans_do_what_flat_numpy_says(layout: Layout) -> None:
    tally = judge.Tally()

    @hypothesis.seed(SEED * len(LAYOUTS) + LAYOUTS.index(layout))
    @settings(
        max_examples=max(1, PLANS // len(LAYOUTS)),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(st.data())
    def one_plan(data: st.DataObject) -> None:
        sample = data.draw(samples(layout).filter(lambda sample: is_storable(sample.tree)))
        note(f"{layout.name}, {sample.optimizer}: {sample}")
        with tempfile.TemporaryDirectory(prefix="plans-") as folder:
            check(data, World(File(folder), layout, sample), tally)

    sys.stdout.write(f"\n{layout.name}, seed {SEED}: ")
    one_plan()
    sys.stdout.write(f"{tally}\n")


def check(data: st.DataObject, world: World, tally: judge.Tally) -> None:
    """Draw a plan edit by edit, hold each prefix against the reference, and carry it out."""
    digest = judge.digest_of(world.source)
    shared = _shared(data, world)
    states, edits = [world.state()], []
    tally.plans += 1
    count = data.draw(st.integers(1, MOST_EDITS))
    for number in range(count):
        state = states[-1]
        if state.has_strangers:
            break
        edit = _drawn(data, state, world, number)
        name = edit["op"]
        edits.append(edit)
        tally.edits += 1
        tally.operations[name] = tally.operations.get(name, 0) + 1
        after = _after(state, edit, world, {**shared, "edits": edits}, tally)
        if after is None:
            edits.pop()
        else:
            states.append(after)
    is_done = _carry_out(world, states, {**shared, "edits": edits}, data, tally)
    if is_done and states[-1].has_strangers:
        edit = _drawn(data, states[-1], world, count)
        if edit["op"] not in ("extract-item", "insert-item"):
            _beside_strangers(world, {**shared, "edits": [*edits, edit]}, states[-1])
    assert judge.digest_of(world.source) == digest, "the source has changed"


def _drawn(data: st.DataObject, state: State, world: World, number: int) -> dict[str, Any]:
    turn = world.sample.seed + 5 * number  # or the first would be drawn most
    names = [*sorted(DRAWERS), "rescale", "normalize", "rescale"]  # what slots follow
    name = data.draw(st.sampled_from(names[turn % len(names) :] + names[: turn % len(names)]))
    return {"op": name, **DRAWERS[name](data.draw, state, world)}


def _shared(data: st.DataObject, world: World) -> dict[str, Any]:
    """The fields of the plan beside its edits."""
    shared: dict[str, Any] = {}
    name = world.sample.optimizer
    if name == "nnx":
        shared["params"] = "model"
    if name in TOLD and data.draw(st.booleans()):
        shared["optimizer_kind"] = TOLD[name]
    if data.draw(st.integers(0, 7)) == 7:
        shared["optimizer"] = data.draw(st.sampled_from(["keep", "reset"]))
    return shared


def _after(
    state: State, edit: dict[str, Any], world: World, document: dict[str, Any], tally: judge.Tally
) -> State | None:
    """The state after the edit; None if it is rightly refused."""
    note(f"plan {json.dumps(document, ensure_ascii=False)}")
    code, said, why = 0, None, ""
    try:
        said = judge.preview(world, document)
    except SurgeryError as error:
        code, why = error.exit_code, str(error)
    policies = {} if said is None else {leaf.path: leaf.policy or "" for leaf in said.leaves}
    silence = "refused" if said is None else ""
    words: Words = lambda path: policies.get(printed(path), silence)  # noqa: E731
    after, expected = None, 0
    try:
        after = reference.edited(state, edit, world, words, document)
    except Refused as refused:
        expected, why = refused.code, f"{refused}; {why}"
    if code != expected:
        may = state.may if after is None else after.may
        is_open = code in may and not expected
        assert is_open, f"refused with {code}, expected {expected}: {why}"
    if code:
        target = world.folder / f"refused{world.source.suffix}"
        assert judge.code_of(world, target, document) == code
        tally.refuse(code, was_open=not expected)
        return None
    return after


def _carry_out(
    world: World,
    states: list[State],
    document: dict[str, Any],
    data: st.DataObject,
    tally: judge.Tally,
) -> bool:
    """Whether it was done. ``states``: of the reference, before the first edit and after each."""
    state = states[-1]
    target = world.folder / f"result{world.source.suffix}"
    code = 0
    try:
        report = judge.applied(world.source, target, document)
    except SurgeryError as error:
        code, why = error.exit_code, str(error)
    if code:
        assert state.refused_by_value or code in state.may, f"refused with {code}: {why}"
        assert judge.code_of(world, world.folder / f"again{target.suffix}", document) == code == 1
        tally.refuse(code, was_open=not state.refused_by_value)
        return False
    assert not state.refused_by_value, f"should be refused: {state.refused_by_value}"
    found = world.restored(target, state.items)
    wrong = judge.compare(found, state)
    assert not wrong, wrong
    wrong = judge.check_preview(judge.preview(world, document), report, world, found)
    assert not wrong, wrong
    if state.items == world.items:
        gone = judge.removed(world, state)
        assert {path for path in report.removed if path in gone.known} == gone.paths
    tally.done += 1
    record = record_path(open_checkpoint(str(target)))
    again = surgery.plan(str(world.source), read_plan(str(record))) if document["edits"] else report
    assert again.draft == report.draft, "the record does not say what was done"
    _undone(world, target, tally)
    if len(states) > 2 and not state.restarted & state.clocks.keys():
        at = data.draw(st.integers(1, len(states) - 2))
        _in_two_runs(world, found, document, at, states[at], state.items)
    return True


def _undone(world: World, result: File, tally: judge.Tally) -> None:
    """The inverse plan makes the original of it, bit for bit."""
    found = surgery.inverse(str(result))
    back = world.folder / f"back{result.suffix}"
    note(f"inverse {json.dumps(found.plan, ensure_ascii=False)}")
    judge.applied(result, back, found.plan)
    wrong = judge.same(world.restored(back, world.items), world.restored(world.source, world.items))
    assert not wrong, wrong
    tally.undone += 1


def _beside_strangers(world: World, document: dict[str, Any], between: State) -> None:
    """A last edit after one that brought leaves: what they are to it a second plan would find, and so must this one."""
    note(f"beside strangers: {json.dumps(document, ensure_ascii=False)}")
    whole = world.folder / f"whole{world.source.suffix}"
    try:
        judge.applied(world.source, whole, document)
    except (PlanError, ValueRefusal):
        return
    found = world.restored(whole, between.items)
    _in_two_runs(world, found, document, len(document["edits"]) - 1, between, between.items)


def _in_two_runs(
    world: World,
    found: dict[Path, Any],
    document: dict[str, Any],
    at: int,
    between: State,
    items: tuple[str, ...],
) -> None:
    """One plan of several edits equals two plans that share them out.

    Left out: a step of which one item is left, whose paths then lack its name; a counter that goes back to its start
    with slots that the same plan must reset; a state that lost its counter, which no `optimizer_kind` fits any more.
    """
    if len(between.clocks) < len(world.state().clocks):
        return
    driven = {slot.state for slot in between.slots.values()}
    if between.slots and not driven.issuperset(between.clocks.values()):
        return
    if len(between.items) == 1 or between.restarted & between.clocks.keys():
        return
    first = world.folder / f"first{at}{world.source.suffix}"
    second = world.folder / f"second{at}{world.source.suffix}"
    edits = document["edits"]
    try:
        judge.applied(world.source, first, {**document, "edits": edits[:at]})
    except ValueRefusal:  # of a leaf that the whole plan takes out
        return
    rest = {**document, "edits": edits[at:]}
    if between.slots and between.root:
        first_root = world.state().root  # still that of all, if they moved below it
        is_lower = is_below(between.root, first_root)
        rest["params"] = printed(first_root if is_lower else between.root)
    if not between.slots:
        rest.pop("params", None)
        rest.pop("optimizer_kind", None)
    judge.applied(first, second, rest)
    wrong = judge.same(world.restored(second, items), found)
    assert not wrong, wrong
