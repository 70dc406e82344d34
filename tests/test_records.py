"""What `surgery.json` says stays true: over items, files, renames, and names that print alike."""

import json
import shutil
from pathlib import Path

import flax.serialization
import jax
import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import reports, surgery
from surgery_cli.document import compact_json
from surgery_cli.errors import CheckpointError, DestinationError, PlanError, ValueRefusal
from surgery_cli.planning import operation_from_options, plan_of


def plan(name, **fields):
    return plan_of([operation_from_options(name, fields)])


def apply(source, destination, name="rescale", options=None, **fields):
    fields = fields or {"at": "**", "by": "2"}
    return surgery.apply(
        str(source), str(destination), plan(name, **fields), options=options or surgery.Options()
    )


def record_of(path):
    return json.loads(path.read_text())


@pytest.fixture
def two_items(tmp_path):
    """A step with the trees `one` and `two`, each with a leaf `w`."""
    root = tmp_path / "root"
    with ocp.CheckpointManager(root) as manager:
        for_items = {
            name: ocp.args.StandardSave({"w": np.full((3,), number, np.float32)})
            for number, name in enumerate(("one", "two"), start=1)
        }
        manager.save(1, args=ocp.args.Composite(**for_items))
    return root


@pytest.fixture
def flat(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "flat", {"w": np.arange(4, dtype=np.float32)})
    return tmp_path / "flat"


def test_an_edit_of_one_item_verifies_from_the_root_the_step_and_either_item(two_items, tmp_path):
    out = tmp_path / "out"
    apply(two_items, out, options=surgery.Options(item="one"), at="w", by="2")
    assert list(record_of(out / "1/surgery.json")["digests"]) == ["one/w"]
    for checkpoint, item, checked in [
        (out, None, 1),
        (out, "one", 1),
        (out, "two", 0),
        (out / "1", None, 1),
        (out / "1/two", None, 0),
        (out / "1/one", None, 1),
    ]:
        verdict = surgery.verify(str(checkpoint), item=item)
        assert verdict.agrees, (checkpoint, item, verdict.findings)
        assert verdict.checked == checked


def test_a_second_edit_keeps_the_digests_of_the_item_that_was_not_chosen(two_items, tmp_path):
    apply(two_items, tmp_path / "a", options=surgery.Options(item="one"), at="w", by="2")
    two = surgery.Options(item="two")
    apply(tmp_path / "a", tmp_path / "b", "rename", two, at="w", to="v")
    apply(tmp_path / "b", tmp_path / "c", "rescale", two, at="v", by="3")
    first = record_of(tmp_path / "a/1/surgery.json")["digests"]
    last = record_of(tmp_path / "c/1/surgery.json")["digests"]
    assert sorted(last) == ["one/w", "two/v"]
    assert last["one/w"] == first["one/w"]
    assert surgery.verify(str(tmp_path / "c")).agrees


def test_a_run_that_edits_nothing_adds_no_digest_to_the_record(tmp_path):
    tree = {name: np.full((3,), number, np.float32) for number, name in enumerate("abc", start=1)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "0", tree)
    apply(tmp_path / "0", tmp_path / "1")
    first = record_of(tmp_path / "1/surgery.json")["digests"]
    for number in (1, 2, 3):
        surgery.apply(str(tmp_path / str(number)), str(tmp_path / str(number + 1)), plan_of([]))
    last = record_of(tmp_path / "4/surgery.json")
    assert last["digests"] == first
    assert [entry["digests"] for entry in last["history"]] == [{}, {}, {}]
    assert [len(entry["leaves"]) for entry in last["history"]] == [3, 0, 0]
    assert surgery.verify(str(tmp_path / "4")).checked == 3


def test_the_history_keeps_digests_of_values_that_are_no_more(tmp_path):
    tree = {name: np.full((3,), number, np.float32) for number, name in enumerate("abc", start=1)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "0", tree)
    apply(tmp_path / "0", tmp_path / "1")
    apply(tmp_path / "1", tmp_path / "2", at="a", by="2")
    apply(tmp_path / "2", tmp_path / "3", "rename", at="b", to="d")
    first, second, last = (record_of(tmp_path / f"{n}/surgery.json") for n in (1, 2, 3))
    assert first["digests"]["a"] != second["digests"]["a"]
    assert [entry["digests"] for entry in last["history"]] == [
        {"a": first["digests"]["a"]},
        {"b": first["digests"]["b"]},
    ]
    assert last["digests"] == {
        "a": second["digests"]["a"],
        "c": first["digests"]["c"],
        "d": first["digests"]["b"],
    }


def test_records_of_before_lose_what_is_said_twice_and_keep_what_is_not_understood(flat, tmp_path):
    apply(flat, tmp_path / "a")
    file = tmp_path / "a/surgery.json"
    record = record_of(file)
    del record["content"]  # of old, too
    strange = [{"digests": record["digests"], "note": "of old"}, {"digests": ["what"]}, {}]
    file.write_text(json.dumps(record | {"history": strange}))
    surgery.apply(str(tmp_path / "a"), str(tmp_path / "b"), plan_of([]))
    history = record_of(tmp_path / "b/surgery.json")["history"]
    assert history[:3] == [{"digests": {}, "note": "of old"}, {"digests": ["what"]}, {}]
    assert len(history) == 4


def test_leaves_that_print_alike_have_digests_of_their_own(tmp_path):
    tree = {"x": {"y": np.ones(2, np.float32)}, "x/y": np.zeros(2, np.float32)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "alike", tree)
    apply(tmp_path / "alike", tmp_path / "out")
    verdict = surgery.verify(str(tmp_path / "out"))
    assert (verdict.agrees, verdict.checked) == (True, 2)
    assert sorted(record_of(tmp_path / "out/surgery.json")["digests"]) == ["x%2Fy", "x/y"]


def test_documents_tell_leaves_that_print_alike_apart(tmp_path):
    tree = {"x": {"y": np.ones(2, np.float32)}, "x/y": np.zeros(2, np.float32)}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "alike", tree)
    shift = plan_of([operation_from_options("replace", {"at": ["**"], "with": "3"})])
    report = surgery.apply(str(tmp_path / "alike"), str(tmp_path / "out"), shift)
    assert {leaf.path: leaf.digest for leaf in report.leaves} == report.digests
    assert sorted(report.digests) == ["x%2Fy", "x/y"]
    changed = surgery.diff(str(tmp_path / "alike"), str(tmp_path / "out")).changed
    assert {change.path: change.a for change in changed} == {"x/y": "1.0", "x%2Fy": "0.0"}


def test_the_record_of_a_file_stands_beside_it_and_takes_no_other_one_s_place(tmp_path):
    source = tmp_path / "checkpoint_5"
    source.write_bytes(flax.serialization.msgpack_serialize({"w": np.ones(3, np.float32)}))
    out, record = tmp_path / "edited", tmp_path / ".edited.surgery.json"
    record.write_text("of another checkpoint")
    with pytest.raises(DestinationError, match="where the record of the result would stand"):
        apply(source, out)
    assert record.read_text() == "of another checkpoint"
    record.unlink()
    apply(source, out)
    out.unlink()  # its record is a stale one, then, and makes way
    apply(source, out)
    assert list(record_of(record)["digests"]) == ["w"]
    assert surgery.verify(str(out)).checked == 1


def test_what_stands_beside_a_directory_is_not_read_as_its_record_and_stays(flat, tmp_path):
    """It was removed: by its name it is the record of a single file that may come back."""
    beside = tmp_path / "out.surgery.json"
    beside.write_text("of another checkpoint")
    apply(flat, tmp_path / "out")
    assert beside.read_text() == "of another checkpoint"
    assert surgery.verify(str(tmp_path / "out")).agrees


def test_without_digests_on_record_all_is_read_and_nothing_compared(tmp_path):
    flat = tmp_path / "flat"
    with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
        checkpointer.save(flat, {"w": np.arange(4, dtype=np.float32)})
    verdict = surgery.verify(str(flat))
    assert (verdict.agrees, verdict.checked, verdict.unchecked) == (True, 0, 1)
    assert verdict.against == "nothing: no digests are on record"
    (note,) = verdict.notes
    assert note.startswith("no file has a digest: metadata was held against itself")
    (flat / "w" / "0").write_bytes(b"not what zstd writes")
    verdict = surgery.verify(str(flat))
    assert [(finding.path, finding.what) for finding in verdict.findings] == [("w", "unreadable")]
    assert verdict.notes == []


def test_the_recorded_plan_can_be_run_again(flat, tmp_path):
    options = surgery.Options(seed=7, optimizer="keep")
    apply(flat, tmp_path / "out", "reinit", options, at="w", init="normal")
    recorded = record_of(tmp_path / "out/surgery.json")["plan"]
    assert (recorded["seed"], recorded["optimizer"]) == (7, "keep")


def test_a_digest_of_another_rank_is_a_finding(flat, tmp_path):
    manifest = surgery.inspect(str(flat), digests=True)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "other", {"w": np.zeros((2, 2), np.float32)})
    file = tmp_path / "manifest.json"
    file.write_text(json.dumps(reports.as_builtins(manifest)))
    (finding,) = surgery.verify(str(tmp_path / "other"), like_manifest=file).findings
    assert (finding.path, finding.what) == ("w", "shape")


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"leaves": ["w"]}',
        b'{"leaves": [{"path": "w", "kind": "array"}]}',
        b'{"leaves": [{"path": "w", "digest": "sha256:0", "grid": ["4"]}]}',
        b'{"leaves": [{"path": "w", "digest": "sha256:0", "grid": [-4]}]}',
        b'{"leaves": [{"path": "\xff", "digest": "sha256:0"}]}',
    ],
)
def test_what_is_no_manifest_is_refused_whatever_it_holds(flat, tmp_path, content):
    file = tmp_path / "manifest.json"
    file.write_bytes(content)
    with pytest.raises(PlanError, match="is not a manifest"):
        surgery.verify(str(flat), like_manifest=file)


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (lambda: jax.random.key(1, impl="rbg"), lambda: jax.random.key(1, impl="unsafe_rbg")),
        (lambda: jax.random.key(1), lambda: jax.random.key_data(jax.random.key(1))),
        (lambda: 5, lambda: np.asarray(5)),
        (lambda: True, lambda: np.asarray(True)),
        (lambda: np.ones(2, np.float32), lambda: jax.numpy.ones(2)),
    ],
    ids=["key implementation", "key and its bits", "int", "bool", "of NumPy or JAX"],
)
def test_a_manifest_tells_kinds_of_equal_values_apart_but_for_the_maker_of_an_array(
    tmp_path, here, there
):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "here", {"a": here()})
        checkpointer.save(tmp_path / "there", {"a": there()})
    file = tmp_path / "manifest.json"
    document = surgery.inspect(str(tmp_path / "here"), digests=True)
    file.write_text(compact_json(document))
    found = surgery.verify(str(tmp_path / "there"), like_manifest=file).findings
    are_arrays = isinstance(here(), np.ndarray)
    assert [(f.path, f.what) for f in found] == ([] if are_arrays else [("a", "kind")])
    assert surgery.verify(str(tmp_path / "here"), like_manifest=file).agrees


def test_a_manifest_tells_a_list_from_a_dict_with_the_same_printed_paths(tmp_path):
    ones = np.ones(2, np.float32)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "list", {"a": [ones, ones], "b": [ones]})
        checkpointer.save(tmp_path / "dict", {"a": {"0": ones, "1": ones}, "b": [ones]})
    for here, there, kinds in (
        ("list", "dict", ("list", "dict")),
        ("dict", "list", ("dict", "list")),
    ):
        file = tmp_path / f"{there}.json"
        document = surgery.inspect(str(tmp_path / there), digests=True)
        file.write_text(compact_json(document))
        (found,) = surgery.verify(str(tmp_path / here), like_manifest=file).findings
        assert (found.path, found.what, found.here, found.there) == ("a", "container", *kinds)
        assert surgery.verify(str(tmp_path / there), like_manifest=file).agrees

        old = msgspec.json.decode(file.read_bytes())
        del old["containers"]
        file.write_bytes(msgspec.json.encode(old))
        assert surgery.verify(str(tmp_path / here), like_manifest=file).agrees


def test_leaves_that_an_empty_manifest_does_not_name_are_findings(flat, tmp_path):
    file = tmp_path / "manifest.json"
    file.write_text('{"leaves": []}')
    verdict = surgery.verify(str(flat), like_manifest=file)
    assert not verdict.agrees
    assert [(finding.path, finding.what) for finding in verdict.findings] == [("w", "extra")]


def test_a_record_that_is_not_utf_8_or_has_a_negative_grid_is_damaged(flat, tmp_path):
    apply(flat, tmp_path / "out")
    file = tmp_path / "out/surgery.json"
    good = file.read_bytes()
    for damaged in (
        good.replace(b'"draft": "sha256', b'"draft": "\xff'),
        good.replace(b"[\n    4", b"[\n    -4"),
    ):
        assert damaged != good
        file.write_bytes(damaged)
        with pytest.raises(CheckpointError, match="cannot be understood"):
            apply(tmp_path / "out", tmp_path / "again")
        (finding,) = surgery.verify(str(tmp_path / "out")).findings
        assert (finding.path, finding.what) == ("surgery.json", "record")


def test_a_draft_of_a_changed_source_is_told_from_a_draft_of_another_plan(flat, tmp_path):
    edit = plan("rescale", at="w", by="2")
    shown = surgery.plan(str(flat), edit).draft
    expecting = surgery.Options(expected_draft=shown)
    with pytest.raises(PlanError, match="previewed"):
        apply(flat, tmp_path / "out", "rescale", expecting, at="w", by="3")
    entry = flat / "array_metadatas"
    entry.mkdir(exist_ok=True)
    (entry / "process_0").write_text('{"array_metadatas": []}')
    with pytest.raises(CheckpointError, match="not what was previewed"):
        apply(flat, tmp_path / "out", "rescale", expecting, at="w", by="2")


def test_no_donor_is_ever_the_destination_or_holds_it(flat, tmp_path):
    shutil.copytree(flat, tmp_path / "donor")
    force = surgery.Options(force=True)
    for destination in (tmp_path / "donor", tmp_path / "donor/out"):
        with pytest.raises(DestinationError):
            surgery.apply(
                str(flat),
                str(destination),
                plan("replace", at="w", **{"with": str(tmp_path / "donor")}),
                options=force,
            )


def test_nan_from_a_file_or_a_donor_stops_the_run_unless_that_is_meant(flat, tmp_path):
    np.savez(tmp_path / "bad.npz", w=np.array([0, np.nan, 1, 2], np.float32))
    edit = {"at": "w", "with": f"{tmp_path}/bad.npz:w"}
    with pytest.raises(ValueRefusal, match="non-finite"):
        apply(flat, tmp_path / "out", "replace", **edit)
    apply(flat, tmp_path / "out", "replace", surgery.Options(allow_non_finite=True), **edit)


@pytest.mark.parametrize("way", ["apply", "make", "preview", "seal", "rescue"])
def test_an_item_in_the_place_of_the_record_is_refused_before_any_work(tmp_path, way):
    tree = ocp.args.PyTreeSave({"w": {"v": np.ones(3, np.float32)}})
    source, new = str(tmp_path / "ck"), str(tmp_path / "new")
    names = ("default",) if way == "make" else ("params", "surgery.json")
    with ocp.Checkpointer(ocp.CompositeCheckpointHandler()) as saver:
        saver.save(source, ocp.args.Composite(**dict.fromkeys(names, tree)))
    made = {"at": "params/w/v", "by": 2.0}
    runs = {
        "apply": lambda: apply(source, new, **made),
        "make": lambda: apply(source, new, "extract-item", at="w", as_="surgery.json"),
        "preview": lambda: surgery.plan(source, plan("rescale", **made)),
        "seal": lambda: surgery.seal(source),
        "rescue": lambda: surgery.rescue(source, new),
    }
    with pytest.raises(CheckpointError, match="stands where the record of a run would"):
        runs[way]()
    assert [path.name for path in tmp_path.iterdir()] == ["ck"]
    assert surgery.verify(source).agrees


@pytest.mark.parametrize(
    "edit",
    [
        {"name": "rename", "at": "params/a", "to": "params/b"},
        {"name": "transpose", "at": "params/w"},
        {"name": "cast", "at": "params/w", "to": "bfloat16"},
        {"name": "copy", "at": "params/a", "to": "params/c"},
        {"name": "delete", "at": "params/a"},
    ],
    ids=lambda edit: edit["name"],
)
@pytest.mark.parametrize("is_sealed", [False, True], ids=["", "sealed"])
def test_a_record_that_is_of_another_checkpoint_tells_nothing_of_this_one(
    tmp_path, edit, is_sealed
):
    """It was copied by hand, say: what the last run in it has made is not there, which metadata show."""
    source = tmp_path / "ck"
    tree = {"params": {"a": {"v": np.ones(3, np.float32)}, "w": np.ones((2, 3), np.float32)}}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(source, tree)
    apply(source, tmp_path / "edited", **edit)
    if is_sealed:
        surgery.seal(str(tmp_path / "edited"))
    assert surgery.verify(str(tmp_path / "edited")).agrees
    assert surgery.inverse(str(tmp_path / "edited")).plan
    apply(source, tmp_path / "other", at="params/w", by=2.0)
    other, told = str(tmp_path / "other"), "the last run on record has written other leaves"
    shutil.copy(tmp_path / "edited" / "surgery.json", other)

    def is_told():
        """By whatever goes by the record, and by an edit, which takes it into the history of its result."""
        (entry,) = (one for one in surgery.log(other).entries if one.kind == "edit")
        assert (entry.undoable, told in entry.not_here) == (False, True)
        with pytest.raises(CheckpointError, match="does not tell of what stands here") as refused:
            surgery.inverse(other)
        assert told in refused.value.problems[0].why
        (seen,) = surgery.doctor(other, settled_seconds=0).places
        notes = [
            surgery.plan(other, plan("rescale", at="params/w", by="2")).consequences,
            surgery.rescue(other).notes,
            seen.why,
        ]
        return all(any(told in str(note) for note in each) for each in notes)

    assert is_told()
    findings = surgery.verify(other).findings
    assert findings
    assert is_sealed or any(f.what == "record" and told in f.detail for f in findings)
    before = Path(other, "surgery.json").read_bytes()
    with pytest.raises(CheckpointError) as refused:
        surgery.seal(other)
    assert told in refused.value.problems[0].why
    assert Path(other, "surgery.json").read_bytes() == before
    surgery.seal(other, anew=True)
    assert surgery.verify(other).agrees
    assert is_told()


ODD_KEYS = ["a", "[a", "*", "{x}", "n\nl", "q%2F", " ", "re:x", "é", "\\"]


@pytest.mark.parametrize("name", ["rescale", "rename", "delete"])
def test_a_record_is_of_its_own_result_however_keys_are_written(tmp_path, name):
    """Also where a key holds slashes, and another path prints alike."""
    params = {"w": np.ones(2, np.float32)}
    for key in ODD_KEYS:
        params |= {key: {"b": np.ones(3, np.float32)}, f"{key}/b": np.ones(3, np.float32)}
    source = tmp_path / "ck.msgpack"
    source.write_bytes(flax.serialization.msgpack_serialize({"params": params}))
    fields = {
        "rescale": {"at": "params", "by": "2"},
        "rename": {"at": "params", "to": "weights"},
        "delete": {"at": "params", "except": "params/w"},
    }[name]
    target = tmp_path / "new.msgpack"
    surgery.apply(str(source), str(target), plan(name, **fields))
    report = surgery.verify(str(target))
    assert report.agrees, report.findings
    (entry,) = surgery.log(str(target)).entries
    assert not entry.not_here
    assert surgery.inverse(str(target)).plan
    surgery.seal(str(target))


def test_what_was_set_aside_is_given_back_only_when_nothing_else_is_wrong(flat, tmp_path):
    set_aside = tmp_path / "out.surgery-old"
    shutil.copytree(flat, set_aside)
    with pytest.raises(PlanError):
        apply(flat, tmp_path / "out", at="nothing here", by="2")
    assert set_aside.exists()
    said = []
    with pytest.raises(DestinationError, match="exists"):
        surgery.apply(
            str(flat), str(tmp_path / "out"), plan("rescale", at="w", by="2"), say=said.append
        )
    assert (tmp_path / "out").exists()
    assert not set_aside.exists()
    assert "restored" in said[0]


def test_what_is_called_like_something_set_aside_is_never_removed(flat, tmp_path):
    """Neither beside a destination that stands, nor where it is no checkpoint and would be 'restored'."""
    force = surgery.Options(force=True)
    shutil.copytree(flat, tmp_path / "out")
    shutil.copytree(flat, tmp_path / "out.surgery-old")
    with pytest.raises(DestinationError, match=r"out.surgery-old' stands beside"):
        apply(flat, tmp_path / "out", options=force)
    assert (tmp_path / "out.surgery-old" / "_METADATA").exists()
    assert not (tmp_path / "out" / "surgery.json").exists()
    (tmp_path / "new.surgery-old").mkdir()
    (tmp_path / "new.surgery-old" / "notes.txt").write_text("mine")

    apply(flat, tmp_path / "new")

    assert (tmp_path / "new" / "surgery.json").exists()
    assert (tmp_path / "new.surgery-old" / "notes.txt").read_text() == "mine"


def test_a_destination_named_like_an_unfinished_save_is_refused(flat, tmp_path):
    for name in ("x.orbax-checkpoint-tmp", "x.surgery-old"):
        with pytest.raises(DestinationError, match="unfinished"):
            apply(flat, tmp_path / name)
