"""A step that gets another item: what is on record of either stays with it, whoever reads, edits or seals the step."""

import json
import shutil

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.proof import surgery_json

OLD = {"params": {"w": np.arange(12, dtype=np.float32).reshape(3, 4), "b": np.ones(4, np.float32)}}
NEW = {"params": {"w": np.full((3, 4), 7, np.float32)}}
"""Of another value under the same path."""

KEYS = {"default": {"params/w", "params/b"}, "extra": {"params/w"}}
RECORDS = ["edited", "sealed", "edited and sealed", "none"]
"""What had become of the step before it got the item."""

ADDED = {"file added", "folder without a sealed file"}


@pytest.fixture
def new(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "new", NEW)
    return tmp_path / "new"


@pytest.fixture
def before(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(500, args=ocp.args.StandardSave(OLD))
        manager.wait_until_finished()
    shutil.copytree(tmp_path / "run/500", tmp_path / "original/500")
    return tmp_path / "run/500"


@pytest.fixture(params=RECORDS)
def state(request):
    return request.param


@pytest.fixture
def step(surgery, before, new, state):
    """A step with the item that it had, which was rescaled or not, and one that was put into it and rescaled."""
    step = before
    if "edited" in state:
        step = before.parent.parent / "edited/500"
        assert surgery("rescale", before, step, "params/*", "--by", "2").code == 0
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    assert surgery("rescale", new, step / "extra", "params/w", "--by", "3").code == 0
    return step


def known(state):
    """The leaves of which there is a digest, by item."""
    return {"default": set() if state == "none" else KEYS["default"], "extra": KEYS["extra"]}


def ways(step):
    """How the step and each item are named, and of which items that is."""
    yield [step], ["default", "extra"]
    for item in ("default", "extra"):
        yield [step, "--item", item], [item]
        yield [step / item], [item]


def restored(step, item):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(step / item)


def test_every_leaf_is_held_against_its_own_digest_however_it_is_named(surgery, step, state):
    for words, items in ways(step):
        found = surgery("verify", *words, "--json").document
        assert found["checked"] == sum(len(known(state)[item]) for item in items), words
        others = {one["what"] for one in found["findings"]}  # a seal is of the step as it was
        assert others <= ADDED, words
        assert bool(others) == ("sealed" in state), words


@pytest.mark.parametrize("item", ["default", "extra"])
def test_other_values_are_found_in_the_item_that_has_them(surgery, step, state, item):
    """Orbax's own save of other values, in the place of the item's."""
    other = step.parent.parent / "other"
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = {"params": {key: value + 1 for key, value in restored(step, item)["params"].items()}}
        checkpointer.save(other, tree)
    for name in ("manifest.ocdbt", "d", "ocdbt.process_0"):
        where = step / item / name
        shutil.rmtree(where) if where.is_dir() else where.unlink(missing_ok=True)
        if (other / name).is_dir():
            shutil.copytree(other / name, where)
        elif (other / name).exists():
            shutil.copy(other / name, where)
    for words, items in ways(step):
        found = surgery("verify", *words, "--json")
        every = [one for one in found.document["findings"] if "file" not in one["what"]]
        wrong = {one["path"].removeprefix(f"{item}/") for one in every}
        assert wrong == (known(state)[item] if item in items else set()), words


def test_the_history_of_each_item_is_its_own(surgery, step, state):
    for words, items in ways(step):
        entries = surgery("log", *words, "--json").document["entries"]
        by = [edit["by"] for one in reversed(entries) for edit in one["plan"].get("edits", ())]
        mine = {"default": [2.0] if "edited" in state else [], "extra": [3.0]}
        assert by == [number for item in items for number in mine[item]], words


@pytest.mark.parametrize("item", ["default", "extra"])
@pytest.mark.parametrize("is_sealed", [False, True], ids=["", "then sealed"])
def test_each_item_can_be_undone(surgery, step, state, tmp_path, item, is_sealed):
    if is_sealed:
        assert surgery("seal", step, *(["--anew"] if "sealed" in state else [])).code == 0
    plan = surgery("plan", step / item, "--inverse")
    if item == "default" and "edited" not in state:
        assert plan.code == (1 if is_sealed else 2)
        return
    assert plan.code == 0, plan.err
    (tmp_path / "back.yaml").write_text(plan.out)
    done = surgery("apply", step, tmp_path / "back", tmp_path / "back.yaml", "--item", item)
    if "sealed" in state and not is_sealed:
        assert (
            "was not there when it was sealed" in done.err
        )  # which the step's seal does not cover
        return
    assert done.code == 0, done.err
    want = OLD if item == "default" else NEW
    got = restored(tmp_path / "back", item)
    for key, value in want["params"].items():
        np.testing.assert_array_equal(got["params"][key], value)


def test_the_whole_step_is_not_undone_by_the_plan_of_one_item(surgery, step):
    refused = surgery("plan", step, "--inverse")
    assert refused.code == 2
    assert "`--item extra`" in refused.err


@pytest.mark.parametrize(
    "words",
    [["**"], ["params/w", "--item", "default"], ["params/w", "--item", "extra"]],
    ids=["whole", "default", "extra"],
)
def test_a_later_edit_takes_all_digests_and_the_history_along(
    surgery, step, state, tmp_path, words
):
    if "sealed" in state:
        assert surgery("seal", step, "--anew").code == 0
    done = surgery("rescale", step, tmp_path / "last", *words, "--by", "0.5")
    assert done.code == 0, done.err
    found = surgery("verify", tmp_path / "last", "--json").document
    edited = {"default", "extra"} if words == ["**"] else {words[-1]}
    held = {(item, key) for item, keys in known(state).items() for key in keys}
    held |= {(item, "params/w") for item in edited}
    held |= {("default", "params/b")} if words == ["**"] else set()
    assert (found["checked"], len(found["agreeing"])) == (len(held), len(held))
    assert not found["findings"]
    record = json.loads((tmp_path / "last/surgery.json").read_text())
    assert record["trees"] == ["default", "extra"]
    assert set(record["edited_trees"]) == edited
    by = [edit["by"] for entry in record["history"] for edit in entry["plan"]["edits"]]
    assert by == ([2.0] if "edited" in state else []) + [3.0]


def test_a_seal_is_about_all_items_from_then_on(surgery, step, state):
    assert surgery("seal", step, *(["--anew"] if "sealed" in state else [])).code == 0
    for words, items in ways(step):
        found = surgery("verify", *words, "--strict", "--json")
        assert found.code == 0, (words, found.document["findings"])
        assert found.document["checked"] == sum(len(KEYS[item]) for item in items)


def test_a_rescue_holds_each_item_against_its_own_digests(surgery, step, state, tmp_path):
    (step / "_CHECKPOINT_METADATA").write_text("{")
    rows = surgery("rescue", step, tmp_path / "rescued", "--allow-partial", "--json").document[
        "leaves"
    ]
    states = {(row["path"], row["state"], row.get("proof")) for row in rows}
    for item, keys in known(state).items():
        for key in keys:
            assert (f"{item}/{key}", "whole", "digest") in states, states


def test_one_tree_under_another_name_is_what_it_was(surgery, before, tmp_path):
    step = tmp_path / "edited/500"
    assert surgery("rescale", before, step, "params/*", "--by", "2").code == 0
    (step / "default").rename(step / "model")
    (step / "_CHECKPOINT_METADATA").unlink()
    found = surgery("verify", step, "--json").document
    assert (found["checked"], found["findings"]) == (2, [])


def test_a_record_of_before_says_nothing_of_which_trees_it_is(surgery, before, new, tmp_path):
    """It is read as it was then: its keys mean the trees of the step as they are."""
    step = tmp_path / "edited/500"
    assert surgery("rescale", before, step, "params/*", "--by", "2").code == 0
    record = json.loads((step / "surgery.json").read_text())
    del record["trees"], record["edited_trees"], record["content"]
    (step / "surgery.json").write_text(json.dumps(record))
    assert surgery("verify", step, "--json").document["checked"] == 2
    assert surgery("rescale", new, step / "extra", "params/w", "--by", "3").code == 0
    assert surgery("verify", step, "--json").document["checked"] == 1  # the item's own record tells
    assert surgery("verify", step / "extra", "--json").document["checked"] == 1


def test_what_runs_on_record_say_of_leaves_is_about_their_own_item(surgery, before, new, tmp_path):
    """Random values that were added to one item's leaf are none of another's, whatever stands in front of its path."""
    step = tmp_path / "edited/500"
    assert surgery("noise", before, step, "params/w", "--std", "0.1", "--seed", "3").code == 0
    assert surgery("rescale", new, step / "extra", "params/w", "--by", "3").code == 0
    for words, is_repeated in (
        ([step, tmp_path / "a", "default/params/w"], True),
        ([step, tmp_path / "b", "extra/params/w"], False),
        ([step, tmp_path / "c", "params/w", "--item", "default"], True),
        ([step, tmp_path / "d", "params/w", "--item", "extra"], False),
        ([step / "extra", tmp_path / "e", "params/w"], False),
    ):
        done = surgery("noise", *words, "--std", "0.1", "--seed", "3")
        assert done.code == 0, done.err
        assert ("by an earlier run, too" in done.out + done.err) == is_repeated, words


def test_an_item_that_is_replaced_is_held_against_what_replaced_it(surgery, step, tmp_path):
    """The digests that the step has of the former one are of values that are no more."""
    last = tmp_path / "last/500"
    assert surgery("rescale", step, last, "**", "--by", "0.5").code in (0, 3)
    if not last.exists():  # what was put into a sealed step is not sealed
        assert surgery("seal", step).code == 0
        assert surgery("rescale", step, last, "**", "--by", "0.5").code == 0
    record = json.loads((last / "surgery.json").read_text())
    assert set(record["digests"]) == {
        f"{item}/{key}" for item, keys in KEYS.items() for key in keys
    }
    # in the same second, which is as far as records tell times
    done = surgery("rescale", tmp_path / "new", last / "extra", "**", "--by", "5", "--force")
    assert done.code == 0, done.err
    for words, items in ways(last):
        found = surgery("verify", *words, "--json").document
        assert found["checked"] == sum(len(KEYS[item]) for item in items), words
        assert not [one for one in found["findings"] if "file" not in one["what"]], words
    entries = surgery("log", last / "extra", "--json").document["entries"]
    assert entries[0]["plan"]["edits"][0]["by"] == 5
    rows = surgery("rescue", last, "--json").document["leaves"]
    assert {row["state"] for row in rows} == {"whole"}


@pytest.mark.parametrize("way", ["gone", "renamed"])
def test_an_item_on_record_that_is_not_there_is_missed_by_whoever_looks(
    surgery, step, tmp_path, state, way
):
    last = tmp_path / "last/500"
    third = tmp_path / "new"
    assert surgery("seal", step).code == 0
    assert surgery("rescale", third, step / "third", "**", "--by", "2").code == 0
    assert surgery("seal", step).code == 0
    assert surgery("rescale", step, last, "**", "--by", "0.5").code == 0
    assert surgery("verify", last).code == 0
    if way == "gone":
        shutil.rmtree(last / "extra")
    else:
        (last / "extra").rename(last / "other")
    found = surgery("verify", last, "--json")
    assert found.code == 1
    assert {one["path"].split("/")[0] for one in found.document["findings"]} == {"extra"}
    (place,) = surgery("doctor", last.parent, "--settled", "0", "--json").document["places"]
    assert place["state"] == "damaged"
    assert "the item 'extra' is on record, and not there" in place["why"]
    assert "extra" in surgery("rescue", last).out
    edited = surgery("rescale", last, tmp_path / "without", "default/**", "--by", "2", "--json")
    assert edited.code == 0
    assert any("'extra' is on record of" in note for note in edited.document["notes"])
    refused = surgery("seal", last)
    assert refused.code == 3
    assert "'extra/params/w' in" in refused.err
    assert "is on record, and not there" in refused.err
    assert surgery("seal", last, "--anew").code == 0
    assert surgery("verify", last, "--strict").code == 0


@pytest.mark.parametrize("damage", ["gone", "added", "changed"])
def test_the_seal_of_an_item_is_held_whoever_reads_it(surgery, step, new, state, damage):
    for name in ("third", "fourth"):
        done = surgery("rescale", new, step / name, "params/w", "--by", "3", "--seal", "--json")
        assert done.code == 0, done.err
        assert "what is put into it is not" not in " ".join(done.document["notes"])
    every = [
        [step],
        [step / "third"],
        [step, "--item", "third"],
        [step, "--item", "fourth"],
        [step / "extra"],
    ]
    for words in every[1:4]:
        found = surgery("verify", *words, "--json").document
        assert found["files_checked"] > 3, words
    kept = step / "third/_METADATA"
    if damage == "gone":
        (step / "third/_CHECKPOINT_METADATA").unlink()
    elif damage == "added":
        (step / "third/junk").write_text("junk")
    else:
        kept.write_bytes(kept.read_bytes() + b" ")
    for words in every:
        found = surgery("verify", *words, "--json").document
        wrong = {one["path"].split("/")[0] for one in found["findings"] if "file" in one["what"]}
        is_seen = "fourth" not in words and words != [step / "extra"]
        assert ("third" in wrong) == (is_seen or "sealed" in state), (words, found["findings"])
    assert surgery("rescale", step, step.parent / "600", "**", "--by", "2").code == 3
    anew = surgery("seal", step)
    assert (anew.code == 0) == (damage == "added"), anew.err  # what came is sealed like the rest


def test_a_seal_is_said_of_the_run_that_was_sealed(surgery, step, state):
    entries = surgery("log", step, "--json").document["entries"]
    assert "sealed" not in entries[0]
    assert [bool(entry.get("sealed")) for entry in entries[1:]] == (
        [True] if "sealed" in state else [False] * ("edited" in state)
    )


def test_no_record_of_an_item_as_it_was_comes_along(surgery, step, tmp_path, state):
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    for number, words in enumerate((["**"], ["params/w", "--item", "default"])):
        last = tmp_path / f"last{number}/500"
        assert surgery("rescale", step, last, *words, "--by", "0.5").code == 0
        assert list(last.rglob("*surgery.json")) == [last / "surgery.json"]
        found = surgery("verify", last / "extra", "--json").document
        assert (found["checked"], found["findings"]) == (1, [])


@pytest.mark.parametrize("is_plan", [True, False], ids=["plan", "apply"])
def test_what_is_put_into_another_checkpoint_is_said_before(
    surgery, step, new, tmp_path, state, is_plan
):
    """What it becomes there, and that a seal does not hold any more."""
    (tmp_path / "plan.yaml").write_text("edits: [{op: rescale, at: params/w, by: 2}]")
    word = "plan" if is_plan else "apply"

    def said(source, destination):
        words = (
            [source, destination, tmp_path / "plan.yaml"]
            if word == "apply"
            else [source, tmp_path / "plan.yaml"]
        )
        if word == "plan":
            words += ["--to", destination]
        done = surgery(word, *words, "--json")
        assert done.code == 0, done.err
        return " ".join(done.document["notes"])

    original = tmp_path / "original/500"
    flat = said(new, step / "third")
    assert (
        f"'{step}' is a step: 'third' becomes an item of it, which its metadata do not name" in flat
    )
    assert ("is sealed, and what is put into it is not" in flat) == ("sealed" in state)
    nested = said(original / "default", new / "inside")
    assert f"'{new}' is a tree itself: 'inside' becomes a folder in it" in nested
    assert "becomes an item" not in said(new, tmp_path / "beside")
    assert "becomes an item" not in said(original / "default", step.parent / "600")


@pytest.mark.parametrize(
    "inside",
    ["extra/deeper", "default/d/sub", "sub/deeper", "extra/params/more"],
)
def test_a_seal_that_is_broken_from_deeper_inside_is_said_as_well(
    surgery, step, new, state, inside
):
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    done = surgery("rescale", new, step / inside, "params/w", "--by", "2", "--json")
    assert done.code == 0, done.err
    said = " ".join(done.document["notes"])
    assert "no part of it" in said or "none of its items" in said
    assert (f"'{step}' is sealed" in said) == ("sealed" in state)
    if "sealed" in state:
        assert surgery("verify", step).code == 1


def test_replacing_what_is_sealed_asks_for_a_seal_anew(surgery, step, new, state):
    assert surgery("seal", step).code == 0
    done = surgery("rescale", new, step / "extra", "params/w", "--by", "2", "--force", "--json")
    (said,) = [note for note in done.document["notes"] if "is a step" in note]
    assert f"until `surgery seal {step} --anew`" in said
    assert surgery("verify", step).code == 1
    assert surgery("seal", step).code == 3
    assert surgery("seal", step, "--anew").code == 0
    assert surgery("verify", step, "--strict").code == 0


def test_a_part_of_a_checkpoint_is_never_to_be_removed(surgery, step, new):
    for part in (step / "default/d", step / "_CHECKPOINT_METADATA", new / "d"):
        refused = surgery(
            "rescale", new.parent / "original/500", part, "**", "--by", "2", "--force"
        )
        assert refused.code == 2
        assert "rm -r" not in refused.err
        assert "a part of the checkpoint" in refused.err


@pytest.mark.parametrize("name", ["surgery.json", "extra.surgery.json"])
def test_nothing_is_written_under_the_name_of_a_record(surgery, step, new, name):
    refused = surgery("rescale", new, step / name, "**", "--by", "2")
    assert refused.code == 2
    assert "has the name of a record" in refused.err


def test_a_step_of_another_kind_or_of_another_name_is_told_before(surgery, before, new, tmp_path):
    run = before.parent
    for number in (500, 600):
        done = surgery("rescale", new, run / str(number), "**", "--by", "2", "--force", "--json")
        assert done.code == 0, done.err
        told = any("one tree without any" in note for note in done.document["notes"])
        assert told == (number == 500), number  # by then the others are like it
    refused = surgery("rescale", new, run / "0500", "**", "--by", "2")
    assert refused.code == 2
    assert "step 500 of" in refused.err
    like = surgery("rescale", tmp_path / "original/500", run / "700", "**", "--by", "2", "--json")
    assert not any("without any" in note for note in like.document["notes"])


def test_the_plan_of_one_item_is_applied_to_that_one_or_to_none(surgery, step, tmp_path, state):
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    done = surgery("cast", step, tmp_path / "cast", "--to", "bfloat16", "--item", "extra")
    assert done.code == 0, done.err
    plan = tmp_path / "cast/surgery.json"
    refused = surgery("apply", step, tmp_path / "out", plan)
    assert refused.code == 2
    assert "the plan is about the item 'extra' alone" in refused.err
    assert "`--item extra`" in refused.err
    assert not (tmp_path / "out").exists()
    assert surgery("apply", step, tmp_path / "out", plan, "--item", "extra").code == 0
    entries = surgery("log", tmp_path / "cast", "--json").document["entries"]
    (tmp_path / "again.yaml").write_text(
        surgery("log", tmp_path / "cast", "--plan", str(entries[0]["number"])).out
    )
    of_items_own = step / "extra/surgery.json"
    for plan in (tmp_path / "again.yaml", of_items_own):
        again = surgery("apply", step, tmp_path / "again", plan)
        assert again.code == 2, plan
        assert "the plan is about the item 'extra' alone" in again.err, plan
    (tmp_path / "back.yaml").write_text(
        surgery("plan", tmp_path / "cast", "--inverse", "--item", "extra").out
    )
    back = surgery("apply", tmp_path / "cast", tmp_path / "back", tmp_path / "back.yaml")
    assert "the plan is about the item 'extra' alone" in back.err
    flat = surgery("apply", tmp_path / "new", tmp_path / "flat", plan)
    assert flat.code == 0, flat.err


def test_what_one_run_did_to_several_is_undone_of_all(surgery, step, tmp_path, state):
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    assert surgery("rescale", step, tmp_path / "whole", "**", "--by", "3").code == 0
    assert surgery("plan", tmp_path / "whole", "--inverse").code == 0
    refused = surgery("plan", tmp_path / "whole/extra", "--inverse")
    assert refused.code == 1
    assert "edited 'default' and 'extra' together" in refused.err


def test_a_damaged_record_of_an_item_is_named_and_nothing_else_is(surgery, step, new, state):
    assert surgery("rescale", new, step / "third", "**", "--by", "2").code == 0
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    record = step / "third/surgery.json"
    record.write_text(record.read_text().replace('"by": 2', '"by": 4').replace('"by":2', '"by":4'))
    found = surgery("verify", step, "--json")
    assert found.code == 1
    wrong = [(one["path"], one["what"]) for one in found.document["findings"]]
    assert wrong[0] == ("third/surgery.json", "record")
    assert {path for path, _ in wrong} == {"third/surgery.json"}
    is_known = "sealed" in state  # then the step's record has what that of the item had
    assert found.document["checked"] == (4 if is_known else 1 + len(known(state)["default"]))
    (place,) = surgery("doctor", step.parent, "--settled", "0", "--json").document["places"]
    assert place["state"] == "damaged"
    assert "third/surgery.json" in " ".join(place["why"])
    assert "no whole leaf" not in place["todo"]


def test_an_item_of_before_that_is_copied_back_is_found_in_the_place_of_the_later(
    surgery, step, tmp_path, state
):
    """It carries a record of its own that holds of it, and the step has digests of what should stand there."""
    shutil.copytree(step / "extra", tmp_path / "kept")
    done = surgery("rescale", tmp_path / "new", step / "extra", "**", "--by", "4", "--force")
    assert done.code == 0, done.err
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    last = tmp_path / "last/500"
    assert surgery("rescale", step, last, "**", "--by", "0.5").code == 0
    assert surgery("verify", last).code == 0
    shutil.rmtree(last / "extra")
    shutil.copytree(tmp_path / "kept", last / "extra")
    for words in ([last], [last / "extra"], [last, "--item", "extra"]):
        found = surgery("verify", *words, "--json").document
        assert "extra/params/w" in {
            f"extra/{one['path'].removeprefix('extra/')}" for one in found["findings"]
        }
    assert "lost" in surgery("rescue", last).out


def test_the_plan_that_left_one_item_of_several_names_items_in_its_paths(
    surgery, step, tmp_path, state
):
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    kept = surgery("keep", step, tmp_path / "kept", "extra/**")
    assert kept.code == 0, kept.err
    again = surgery("apply", step, tmp_path / "again", tmp_path / "kept/surgery.json")
    assert again.code == 0, again.err
    assert sorted(path.name for path in (tmp_path / "again").iterdir() if path.is_dir()) == [
        "extra"
    ]
    back = surgery("plan", tmp_path / "kept", "--inverse")
    assert back.code == 0, back.err


def test_a_record_of_before_of_a_step_of_several_misses_what_is_gone(
    surgery, step, tmp_path, state
):
    last = tmp_path / "last/500"
    if "sealed" in state:
        assert surgery("seal", step).code == 0
    assert surgery("rescale", step, last, "**", "--by", "0.5").code == 0
    record = json.loads((last / "surgery.json").read_text())
    for key in ("trees", "edited_trees", "content"):
        del record[key]
    (last / "surgery.json").write_text(json.dumps(record))
    assert surgery("verify", last, "--json").document["checked"] == 3
    assert surgery("rescale", tmp_path / "new", last / "third", "**", "--by", "2").code == 0
    found = surgery("verify", last, "--json").document
    assert (found["checked"], found["findings"]) == (4, [])
    shutil.rmtree(last / "extra")
    found = surgery("verify", last, "--json").document
    assert {one["path"].split("/")[0] for one in found["findings"]} == {"extra"}
    (place,) = surgery("doctor", last.parent, "--settled", "0", "--json").document["places"]
    assert "the item 'extra' is on record, and not there" in place["why"]
    assert "lost 'extra': it is on record, and nothing of it is left" in surgery("rescue", last).out


def test_an_item_that_is_moved_keeps_its_runs_under_its_new_name(
    surgery, step, before, tmp_path, state
):
    other = shutil.copytree(tmp_path / "original/500", tmp_path / "moved/7")
    shutil.copytree(step / "extra", other / "ema")
    (entry,) = surgery("log", other / "ema", "--json").document["entries"]
    assert (entry["items"], entry["undoable"]) == (["ema"], True)
    plan = surgery("plan", other, "--item", "ema", "--inverse")
    assert plan.code == 0, plan.err
    assert "of_item: ema" in plan.out
    found = surgery("verify", other, "--json").document
    assert (found["checked"], found["findings"]) == (1, [])


@pytest.mark.parametrize(
    "command", ["verify", "log", "doctor", "seal", "rescale", "plan", "rescue"]
)
def test_each_record_is_decoded_once_by_whatever_command(
    surgery, step, state, tmp_path, command, monkeypatch
):
    """Of a hundred thousand leaves, a record takes half a second."""
    seen = []

    def decoded(raw, type):
        seen.append(raw)
        return decode(raw, type)

    decode = surgery_json.decode_json
    monkeypatch.setattr(surgery_json, "decode_json", decoded)
    surgery_json.decoded.cache_clear()
    edit = ("rescale", step, tmp_path / "result", "*/params/w", "--by", "2")
    more = {
        "rescale": edit,
        "plan": (*edit, "--dry-run"),
        "rescue": ("rescue", step, tmp_path / "result"),
    }
    # `verify` finds what was put into a sealed step, and an edit refuses that
    codes = {"verify": (0, 1), "rescale": (0, 3), "plan": (0, 3)}
    run = surgery(*more.get(command, (command, step)))
    assert run.code in codes.get(command, (0,)), run.stderr
    assert seen
    assert len(set(seen)) == len(seen)
