"""What fills a leaf is of another state than what is left: edits that one of them had, counts of another step."""

import shutil

import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_from_document, plan_of

RNG = np.random.default_rng(0)
EDITS = {
    "rescale": {"by": 0.5},
    "permute": {"axis": "1", "index": "3,2,1,0"},
    "transpose": {},
    "reinit": {"init": "normal"},
    "clip": {"max": 0.1},
    "noise": {"std": 0.1},
}


def saved(path, tree):
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)) as checkpointer:
        checkpointer.save(path, tree)
    return path


def state(tx=None, steps=3):
    params = {"w": RNG.normal(size=(4, 4)).astype(np.float32), "v": np.ones(3, np.float32)}
    if tx is None:
        return {"params": params}
    slots = tx.init(params)
    for _ in range(steps):
        _, slots = tx.update(params, slots, params)
    return {"params": params, "opt_state": slots}


def edited(source, target, name, **fields):
    plan = plan_of([operation_from_options(name, {"at": "params/w", **fields})])
    surgery.apply(str(source), str(target), plan)
    return target


def told(report, words):
    return [str(note) for note in report.notes if words in str(note)]


@pytest.mark.parametrize("fill_by", ["leaf", "chunk"])
@pytest.mark.parametrize("name", EDITS)
def test_edits_that_what_fills_a_leaf_has_not_had_are_told(tmp_path, name, fill_by):
    older, newer = saved(tmp_path / "older", state()), saved(tmp_path / "newer", state())
    broken = edited(newer, tmp_path / "broken", name, **EDITS[name])
    also = edited(older, tmp_path / "also", name, **EDITS[name])
    shutil.rmtree(broken / "params.w")
    shutil.rmtree(broken / "params.v")

    def notes(other, words):
        found = surgery.rescue(str(broken), fill_from=str(other), fill_by=fill_by)
        return told(found, words)

    (note,) = notes(older, "no such run of")
    assert note.startswith(f"`{name}` of 'params/w' is on record of what is left, and no such run")
    assert not notes(also, "no such run of")
    more = edited(also, tmp_path / "more", "rescale", by=3.0)
    (note,) = notes(more, "no such run of")
    assert note.startswith(f"`rescale` of 'params/w' is on record of '{more}', and no such run of")


RULES = {
    "an assertion before": lambda plan: {**plan, "edits": [RULE, *plan["edits"]]},
    "an assertion behind": lambda plan: {**plan, "edits": [*plan["edits"], RULE]},
    "rules of the whole": lambda plan: {**plan, "check": [{"at": "params/w", "finite": True}]},
    "a count": lambda plan: {**plan, "edits": [{**plan["edits"][0], "expect": 1}]},
    "a remark": lambda plan: {**plan, "edits": [{**plan["edits"][0], "note": "half"}]},
}
RULE = {"op": "assert", "at": "params/w", "finite": True}


@pytest.mark.parametrize("rules", RULES)
def test_rules_are_no_edits(tmp_path, rules):
    """Two runs that gave a leaf the same values are one, whatever had to hold of them."""
    plan = {"edits": [{"op": "rescale", "at": "params/w", "by": 0.5}]}
    first = saved(tmp_path / "older", {"params": {"w": RNG.normal(size=(4, 4)).astype(np.float32)}})
    drafts = []
    for name, document in (("broken", plan), ("also", RULES[rules](plan))):
        done = surgery.apply(str(first), str(tmp_path / name), plan_from_document(document))
        drafts.append(done.draft)
    assert len(set(drafts)) == 1  # they are one draft
    shutil.rmtree(tmp_path / "broken" / "params.w")

    report = surgery.rescue(str(tmp_path / "broken"), fill_from=str(tmp_path / "also"))

    assert not told(report, "is on record of")
    other = plan_from_document({"edits": [RULE, {"op": "rescale", "at": "params/w", "by": 0.25}]})
    surgery.apply(str(first), str(tmp_path / "other"), other)
    report = surgery.rescue(str(tmp_path / "broken"), fill_from=str(tmp_path / "other"))
    notes = told(report, "is on record of")
    assert [note.split(" of ")[0] for note in notes] == ["`rescale`"] * 2


@pytest.mark.parametrize("kind", ["file", "checkpoint"])
def test_the_same_words_with_other_values_are_another_edit(tmp_path, kind):
    """A donor that changed in between has given something else."""
    older, newer = saved(tmp_path / "older", state()), saved(tmp_path / "newer", state())
    donor = tmp_path / ("w.npy" if kind == "file" else "donor")

    def give(value):
        values = np.full((4, 4), value, np.float32)
        if kind == "file":
            np.save(donor, values)
        else:
            shutil.rmtree(donor, ignore_errors=True)
            saved(donor, {"params": {"w": values}})

    give(1.0)
    broken = edited(newer, tmp_path / "broken", "replace", **{"with": str(donor)})
    shutil.rmtree(broken / "params.w")
    found = {}
    for value in (1.0, 2.0):
        if value > 1.0:
            give(value)
        also = edited(older, tmp_path / str(value), "replace", **{"with": str(donor)})
        found[value] = told(surgery.rescue(str(broken), fill_from=str(also)), "no such run of")
    assert not found[1.0]
    assert any("`replace` of 'params/w' is on record of what is left" in one for one in found[2.0])


def histories(folder, *edits):
    """A checkpoint that has had these edits one after the other; `undo` takes back the last."""
    now = saved(folder / "0", {"params": {"w": np.arange(16, dtype=np.float32).reshape(4, 4)}})
    for number, name in enumerate(edits, 1):
        new = folder / str(number)
        if name == "undo":
            surgery.apply(str(now), str(new), plan_from_document(surgery.inverse(str(now)).plan))
        else:
            edited(now, new, name, **EDITS.get(name, {}))
        now = new
    return now


@pytest.mark.parametrize(
    ("left", "there", "lacked", "brought"),
    [
        (["permute"], ["permute"], "", ""),
        (["permute", "permute"], ["permute"], "permute", ""),
        (["permute"], ["permute", "permute"], "", "permute"),
        (["permute", "transpose"], ["transpose", "permute"], "transpose", "transpose"),
        (["permute", "rescale"], ["rescale"], "permute", ""),
        (["permute", "undo"], [], "", ""),
        (["rescale", "undo"], [], "", ""),
        (["rescale", "permute", "undo"], ["rescale"], "", ""),
        (["permute", "undo", "permute"], ["permute"], "", ""),
    ],
    ids=lambda words: "-".join(words) if isinstance(words, list) else words or "none",
)
def test_edits_on_both_sides_are_the_same_in_number_and_order(
    tmp_path, left, there, lacked, brought
):
    for side in ("left", "there"):
        (tmp_path / side).mkdir()
    broken, other = histories(tmp_path / "left", *left), histories(tmp_path / "there", *there)
    shutil.rmtree(broken / "params.w")
    report = surgery.rescue(str(broken), fill_from=str(other))
    of_left = told(report, "is on record of what is left, and no")
    of_other = told(report, f"is on record of '{other}', and no")
    for notes, name in ((of_left, lacked), (of_other, brought)):
        assert len(notes) == bool(name)
        assert all(note.startswith(f"`{name}` of 'params/w'") for note in notes)


def test_a_leaf_that_has_moved_has_the_values_that_it_had(tmp_path):
    """Of its edits before, under the name that it had then, is told."""
    first = edited(saved(tmp_path / "a", state()), tmp_path / "b", "rescale", by=2.0)
    broken = edited(first, tmp_path / "c", "rename", to="params/u")
    plain = edited(tmp_path / "a", tmp_path / "d", "rename", to="params/u")
    shutil.rmtree(broken / "params.u")
    (note,) = told(surgery.rescue(str(broken), fill_from=str(plain)), "no such run of")
    assert note.startswith("`rescale` of 'params/u' is on record of what is left")


def test_another_leaf_under_the_name_is_none_that_goes_unsaid(tmp_path):
    """Names that were exchanged, or given to another: the donor has both, each under the name of the other."""
    tree = {"params": {name: RNG.normal(size=(4, 4)).astype(np.float32) for name in "ab"}}
    source = saved(tmp_path / "a", tree)
    swap = operation_from_options(
        "rename", {"moves": {"params/a": "params/b", "params/b": "params/a"}}
    )
    surgery.apply(str(source), str(tmp_path / "b"), plan_of([swap]))
    shutil.rmtree(tmp_path / "b" / "params.a")
    (note,) = told(surgery.rescue(str(tmp_path / "b"), fill_from=str(source)), "no such run of")
    assert note.startswith("`rename` of 'params/a' is on record of what is left")


def test_a_count_that_is_the_same_on_both_sides_is_of_one_state(tmp_path):
    whole = saved(tmp_path / "a", state(optax.adam(1e-3), 7))
    broken = tmp_path / "b"
    shutil.copytree(whole, broken)
    shutil.rmtree(broken / "opt_state.0.nu.w")
    assert not told(surgery.rescue(str(broken), fill_from=str(whole)), "go by its count")


@pytest.mark.parametrize(
    ("tx", "clock"),
    [
        (optax.adam(1e-3), "opt_state/0/count"),
        (optax.adamw(optax.linear_schedule(1.0, 0.0, 9)), "opt_state/0/count"),
        (optax.nadam(1e-3), "opt_state/0/count"),
        (optax.MultiSteps(optax.adam(1e-3), 2), "opt_state/inner_opt_state/0/count"),
        (optax.sgd(1e-3, momentum=0.9), ""),
    ],
    ids=["adam", "adamw", "nadam", "accumulated", "no count"],
)
def test_slots_and_a_count_of_two_states_are_told(tmp_path, tx, clock):
    older, broken = saved(tmp_path / "a", state(tx, 2)), saved(tmp_path / "b", state(tx, 7))
    slots = [path.name for path in broken.iterdir() if path.name.endswith(".w")]
    for lost in slots:
        if "opt_state" in lost:
            shutil.rmtree(broken / lost)
    words = f"'{clock}' is as it was saved, and of the slots that go by its count"
    found = told(surgery.rescue(str(broken), fill_from=str(older)), words)
    assert bool(found) == bool(clock)
    assert all("'opt_state" in note and f"from '{older}'" in note for note in found)


def test_a_count_of_another_state_than_its_slots_is_told(tmp_path):
    older = saved(tmp_path / "a", state(optax.adam(1e-3), 2))
    broken = saved(tmp_path / "b", state(optax.adam(1e-3), 7))
    shutil.rmtree(broken / "opt_state.0.count")
    (note,) = told(surgery.rescue(str(broken), fill_from=str(older)), "go by its count")
    assert f"'opt_state/0/count' is from '{older}'" in note
    shutil.rmtree(broken / "params.w")
    for lost in ("mu", "nu"):
        for name in ("w", "v"):
            shutil.rmtree(broken / f"opt_state.0.{lost}.{name}")
    assert not told(surgery.rescue(str(broken), fill_from=str(older)), "go by its count")


def test_a_lost_count_is_of_the_same_step_where_those_that_are_left_agree(tmp_path):
    tree = state(optax.adamw(optax.linear_schedule(1.0, 0.0, 9)), 7) | {"step": np.int32(7)}
    whole, broken = saved(tmp_path / "a", tree), saved(tmp_path / "b", tree)
    shutil.rmtree(broken / "opt_state.0.count")
    report = surgery.rescue(str(broken), fill_from=str(whole))
    assert not told(report, "go by its count")
    assert not told(report, "at another count")


@pytest.mark.parametrize(
    ("tx", "lost", "left"),
    [
        (
            optax.adamw(optax.linear_schedule(1.0, 0.0, 9)),
            ["opt_state.2.count"],
            "opt_state/0/count",
        ),
        (
            optax.chain(optax.trace(0.9), optax.scale_by_schedule(lambda step: step)),
            ["opt_state.1.count"],
            "step",
        ),
        (
            optax.MultiSteps(optax.trace(0.9), 2),
            ["opt_state.gradient_step", "opt_state.mini_step"],
            "step",
        ),
        (optax.trace(0.9), ["step"], ""),
    ],
    ids=["schedule", "schedule beside a step", "accumulated", "step alone"],
)
def test_counters_of_two_states_are_told(tmp_path, tx, lost, left):
    saves = {}
    for steps in (2, 7):
        tree = state(tx, steps) | {"step": np.int32(steps)}
        saves[steps] = saved(tmp_path / str(steps), tree)
    broken = saves[7]
    twin = tmp_path / "twin"
    shutil.copytree(broken, twin)
    for name in lost:
        shutil.rmtree(broken / name)
    found = told(surgery.rescue(str(broken), fill_from=str(saves[2])), "at another count than here")
    assert len(found) == bool(left)
    for note in found:
        assert f"is from '{saves[2]}'" in note or f"are from '{saves[2]}'" in note
        assert f"'{left}'" in note
    alike = surgery.rescue(str(broken), fill_from=str(twin))
    assert not told(alike, "at another count")


@pytest.mark.parametrize("option", ["like", "fill_from"])
def test_the_checkpoint_that_gives_the_names_is_named(tmp_path, option):
    older, broken = saved(tmp_path / "a", state()), saved(tmp_path / "b", state())
    (broken / "_METADATA").unlink()
    (note,) = told(surgery.rescue(str(broken), **{option: str(older)}), "names and nesting")
    assert note == f"names and nesting come from another checkpoint, '{older}'"


def test_where_nothing_is_filled_nothing_is_told_of_what_would(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (1, 2):
            manager.save(step, args=ocp.args.StandardSave(state(optax.adam(1e-3), step)))
    found = surgery.rescue(str(tmp_path / "run" / "2"), fill_from=str(tmp_path / "run"))
    assert found.whole == len(found.leaves)
    assert not told(found, "fills")


@pytest.mark.parametrize("use_ocdbt", [True, False])
def test_what_a_rescue_writes_has_a_digest_of_every_leaf(tmp_path, use_ocdbt):
    """Also of what is empty, or text: `verify --strict` asks for all."""
    tree = {"params": {"w": np.ones(3), "none": None, "empty": {}}, "note": "text", "step": 3}
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(tmp_path / "ck", tree)
    surgery.rescue(str(tmp_path / "ck"), str(tmp_path / "new"))
    found = surgery.verify(str(tmp_path / "new"))
    assert (found.agrees, found.without_digest) == (True, 0)
