"""Two steps are compared item by item where one of them has several, however many are left in the other."""

from __future__ import annotations

import re
import shlex
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

STATE = {"params": {"w": np.arange(3, dtype=np.float32)}, "layers": [np.ones(2), np.zeros(2)]}
"""Three leaves."""
EMA = {"w": np.arange(3, dtype=np.float32)}
"""One."""


@pytest.fixture
def run(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        items = {"state": ocp.args.StandardSave(STATE), "ema": ocp.args.StandardSave(EMA)}
        manager.save(1, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
    return tmp_path / "run"


def _without(run, item):
    """A copy of the run that has lost an item."""
    lost = run.with_name(f"without-{item}")
    shutil.copytree(run, lost)
    shutil.rmtree(lost / "1" / item)
    return lost


@pytest.mark.parametrize("named", ["run", "step"])
@pytest.mark.parametrize("lost", ["ema", "state"])
@pytest.mark.parametrize("is_first", [True, False])
def test_diff_of_a_step_that_lost_an_item(surgery, run, named, lost, is_first):
    """All leaves of the other item were said to be on one side alone, under two names."""
    lacking = _without(run, lost)
    sides = [run, lacking] if named == "run" else [run / "1", lacking / "1"]
    a, b = sides if is_first else sides[::-1]
    full, poor = ("a", "b") if is_first else ("b", "a")
    found = surgery("diff", a, b, "--json")
    assert found.code == 1
    of = {
        "ema": ["ema/w"],
        "state": ["state/layers/0", "state/layers/1", "state/params/w"],
    }
    left = "state" if lost == "ema" else "ema"
    assert sorted(found.document[f"only_in_{full}"]) == of[lost]
    assert found.document[f"only_in_{poor}"] == []
    assert found.document["changed"] == []
    assert sorted(found.document["agreeing"]) == of[left]
    assert found.document[f"items_only_in_{full}"] == [lost]
    assert found.document[f"items_only_in_{poor}"] == []
    assert f"only {full} has {lost}" in surgery("diff", a, b).out


def test_values_of_the_item_that_is_left_are_compared(surgery, run):
    lacking = _without(run, "ema")
    with ocp.StandardCheckpointer() as checkpointer:
        other = {"params": {"w": STATE["params"]["w"] + 1}, "layers": STATE["layers"]}
        checkpointer.save(lacking / "1" / "state", other, force=True)
    (change,) = surgery("diff", run, lacking, "--json").document["changed"]
    assert (change["path"], change["what"], change["max_abs"]) == ("state/params/w", "values", 1.0)


def test_a_list_beside_a_dict_is_found_below_the_items_name(surgery, run):
    lacking = _without(run, "ema")
    with ocp.StandardCheckpointer() as checkpointer:
        other = {**STATE, "layers": {"0": STATE["layers"][0], "1": STATE["layers"][1] + 1}}
        checkpointer.save(lacking / "1" / "state", other, force=True)
    found = surgery("diff", run, lacking, "--json").document
    changes = {(change["path"], change["what"]) for change in found["changed"]}
    assert changes == {("state/layers", "container"), ("state/layers/1", "values")}
    assert found["only_in_a"] == ["ema/w"]


def test_patterns_begin_with_the_items_name(surgery, run):
    lacking = _without(run, "ema")
    found = surgery("diff", run, lacking, "state/params", "--json")
    assert (found.code, found.document["equal"]) == (0, 1)


def test_two_steps_that_lost_another_item_each_have_nothing_in_common(surgery, run):
    """Both record both items: the one that is left in the one is not the other's."""
    found = surgery("diff", _without(run, "ema"), _without(run, "state"), "--json").document
    assert (found["equal"], found["items_only_in_a"], found["items_only_in_b"]) == (
        0,
        ["state"],
        ["ema"],
    )


def test_an_item_beside_its_step_is_that_item(surgery, run):
    found = surgery("diff", run / "1" / "state", run, "--json").document
    assert (found["equal"], found["only_in_a"], found["only_in_b"]) == (3, [], ["ema/w"])
    assert (found["items_only_in_a"], found["items_only_in_b"]) == ([], [])


def test_single_items_are_compared_whatever_they_are_called(surgery, run, tmp_path):
    with ocp.CheckpointManager(tmp_path / "plain") as manager:
        manager.save(1, args=ocp.args.StandardSave(STATE))
        manager.wait_until_finished()
    with ocp.CheckpointManager(tmp_path / "named") as manager:
        manager.save(1, args=ocp.args.Composite(model=ocp.args.StandardSave(STATE)))
        manager.wait_until_finished()
    found = surgery("diff", tmp_path / "plain", tmp_path / "named", "--json")
    assert (found.code, found.document["equal"]) == (0, 3)
    assert (found.document["items_only_in_a"], found.document["items_only_in_b"]) == ([], [])


@pytest.mark.parametrize("is_first", [True, False])
def test_verify_like_a_run_with_one_more_item(surgery, run, is_first):
    a, b = [run, _without(run, "ema")] if is_first else [_without(run, "ema"), run]
    found = surgery("verify", a, "--like", b, "--json")
    assert found.code == 1
    what = "extra" if is_first else "missing"
    assert [(one["path"], one["what"]) for one in found.document["findings"]] == [("ema/w", what)]


def test_verify_like_holds_the_item_that_was_chosen_against_the_same(surgery, run):
    found = surgery("verify", _without(run, "ema"), "--like", run, "--item", "state", "--json")
    assert (found.code, found.document["checked"]) == (0, 3)
    assert [note for note in found.document["notes"] if "not compared" in note] == [
        "not compared, as `--item` chose another: ema"
    ]


def _saved(place, **items):
    with ocp.CheckpointManager(place) as manager:
        manager.save(1, args=ocp.args.Composite(**items))
        manager.wait_until_finished()
    return place


def _unrecorded(run):
    (run / "1" / "_CHECKPOINT_METADATA").unlink()
    return run


LIKE = {
    "lost, on record": lambda run, _: _without(run, "ema"),
    "lost, not on record": lambda run, _: _unrecorded(_without(run, "ema")),
    "never had it": lambda _, new: _saved(new, state=ocp.args.StandardSave(EMA)),
    "has one by no name": lambda _, new: _saved(new, default=ocp.args.StandardSave(EMA)),
    "several others": lambda _, new: _saved(
        new, a=ocp.args.StandardSave(EMA), b=ocp.args.StandardSave(EMA)
    ),
    "no tree": lambda _, new: _saved(
        new, state=ocp.args.StandardSave(EMA), ema=ocp.args.JsonSave({"w": 1})
    ),
}


@pytest.mark.parametrize("is_step", [True, False], ids=["step", "run"])
@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("command", ["verify", "diff"])
def test_an_item_that_was_chosen_is_held_against_no_other(
    surgery, run, tmp_path, command, like, is_step
):
    """It "agreed in structure" with what another item has."""
    other = LIKE[like](run, tmp_path / "other")
    other = other / "1" if is_step else other
    words = {"verify": ("verify", run, "--like", other), "diff": ("diff", run, other)}[command]
    refused = surgery(*words, "--item", "ema")
    assert refused.code == 2, refused.out
    assert refused.err.startswith(f"error: there is no tree 'ema' in '{other}")


def test_what_is_advised_for_another_item_works(surgery, run, tmp_path):
    other = _saved(tmp_path / "other dir", average=ocp.args.StandardSave(EMA))
    refused = surgery("verify", run, "--item", "ema", "--like", other)
    (advised,) = re.findall("`(--like .*)`", refused.err)
    held = surgery("verify", run, "--item", "ema", *shlex.split(advised))
    assert (held.code, "agrees in structure" in held.out) == (0, True)


@pytest.mark.parametrize("bare", ["flat", "an item's own path"])
def test_a_tree_by_itself_is_what_an_item_is_held_against(surgery, run, tmp_path, bare):
    place = run / "1" / "ema"
    if bare == "flat":
        place = tmp_path / "flat"
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(place, EMA)
    held = surgery("verify", run, "--item", "ema", "--like", place, "--json")
    assert (held.code, held.document["checked"]) == (0, 1)


@pytest.mark.parametrize("unrecorded", ["a", "b", "ab"])
def test_without_a_record_single_items_are_compared_by_their_names(surgery, run, unrecorded):
    """What is left of one and of the other, under names that nothing says belong together."""
    sides = {"a": _without(run, "ema"), "b": _without(run, "state")}
    for side in unrecorded:
        _unrecorded(sides[side])
    found = surgery("diff", sides["a"], sides["b"], "--json").document
    assert (found["equal"], found["changed"]) == (0, [])
    assert (found["items_only_in_a"], found["items_only_in_b"]) == (["state"], ["ema"])
    held = surgery("verify", sides["a"], "--like", sides["b"], "--json")
    assert held.code == 1
    assert {one["what"] for one in held.document["findings"]} == {"extra", "missing"}
    paths = [str(sides["a"] / "1" / "state"), str(sides["b"] / "1" / "ema")]
    assert surgery("diff", *paths, "--json").document["only_in_b"] == ["w"]


def _flat(place):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(place, EMA)
    return place


APART = {
    "a tree by itself": lambda run: (_flat(run.with_name("flat")), run),
    "several by other names": lambda run: (LIKE["several others"](run, run.with_name("o")), run),
    "what is left of two": lambda run: (_without(run, "ema"), _without(run, "state")),
}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("apart", APART)
def test_where_nothing_is_in_both_it_is_said_what_can_be_compared(surgery, run, apart, is_first):
    """All leaves were on one side alone, and nothing said that an item can be named."""
    pair = APART[apart](run)
    a, b = pair if is_first else pair[::-1]
    found = surgery("diff", a, b, "--json")
    assert (found.code, found.document["equal"], found.document["changed"]) == (1, 0, [])
    items = found.document["items_apart"]
    there = [path for side in (a, b) for path in (side / "1").glob("*") if path.is_dir()]
    assert sorted(items) == sorted(map(str, there))
    said = "no leaf is in both, as paths begin with the names of items"
    for words in (("diff", a, b), ("verify", a, "--like", b)):
        assert said in " ".join(surgery(*words).out.split())
    ema = next(item for item in items if item.endswith(("/1/ema", "/1/a")))
    assert surgery("diff", _flat(run.with_name("bare")), ema).code == 0


def test_nothing_of_the_kind_is_said_where_a_leaf_is_in_both(surgery, run):
    found = surgery("diff", run, _without(run, "ema"), "--json")
    assert found.document["items_apart"] == []
    flat = run.with_name("flat")
    other = run.with_name("other")
    for place, tree in ((flat, EMA), (other, {"v": EMA["w"]})):
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(place, tree)
    assert surgery("diff", flat, other, "--json").document["items_apart"] == []
