"""A seal adds one record and touches nothing else; from then on `verify` finds what changes, and edits refuse it."""

import json
import os
import shutil
import threading
from importlib import import_module

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, DestinationError
from surgery_cli.planning import plan_from_document
from surgery_cli.proof import record_files
from surgery_cli.proof.record_files import put_record

sealing = import_module("surgery_cli.surgery.seal")  # the package has the function of that name


def record_of(path):
    return json.loads(path.read_text())


def apply(source, destination, edit, **options):
    plan = plan_from_document({"edits": [edit]})
    return surgery.apply(str(source), str(destination), plan, options=surgery.Options(**options))


def findings(checkpoint, **options):
    return [(f.path, f.what) for f in surgery.verify(str(checkpoint), **options).findings]


def state(path):
    """Every file with its bytes, inode and time of change."""
    return {
        file.relative_to(path): (file.read_bytes(), file.stat().st_ino, file.stat().st_mtime_ns)
        for file in path.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def run(tmp_path):
    """A manager's root with the steps 1 and 2, of two trees and metrics."""
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    with ocp.CheckpointManager(tmp_path / "run", options=options) as manager:
        for step in (1, 2):
            trees = {
                name: ocp.args.StandardSave({"w": np.full((5, 4), step + bias, np.float32)})
                for bias, name in enumerate(("params", "ema"))
            }
            manager.save(step, args=ocp.args.Composite(**trees), metrics={"loss": 0.5})
    return tmp_path / "run"


@pytest.fixture
def flat(tmp_path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "flat", {"w": np.arange(4, dtype=np.float32), "s": "hi"})
    (tmp_path / "flat/commit_success.txt").touch()  # older Orbax puts none on a disk
    return tmp_path / "flat"


def test_one_file_is_added_to_the_chosen_step_and_nothing_else_is_touched(run):
    before = state(run)
    report = surgery.seal(str(run), step=1)
    after = state(run)
    (added,) = after.keys() - before.keys()
    assert str(added) == "1/surgery.json"
    assert {key: value for key, value in after.items() if key != added} == before
    assert report.record == str(run / added)
    assert report.leaves == 2
    assert report.files == len([key for key in before if key.parts[0] == "1"])
    record = record_of(run / added)
    assert sorted(record["digests"]) == ["ema/w", "params/w"]
    assert record["sealed"]["files"] == len(record["files"]) == report.files
    with ocp.CheckpointManager(run) as manager:
        restored = manager.restore(1, args=ocp.args.Composite(ema=ocp.args.StandardRestore()))
        np.testing.assert_array_equal(restored["ema"]["w"], np.full((5, 4), 2.0))
    verdict = surgery.verify(str(run), step=1)
    assert (verdict.agrees, verdict.checked, verdict.unchecked) == (True, 2, 0)
    assert verdict.files_checked == report.files
    assert surgery.verify(str(run)).files_checked == 0  # step 2 is not sealed


def test_a_sealed_step_is_sealed_from_wherever_it_is_named(run):
    surgery.seal(str(run), step=2, item="ema")
    assert findings(run / "2") == findings(run / "2/params") == []
    metrics = run / "2/metrics/metrics"
    metrics.write_bytes(metrics.read_bytes().replace(b"0.5", b"0.6"))
    for place, item in ((run, None), (run / "2", "params"), (run / "2/ema", None)):
        assert findings(place, item=item) == [("metrics/metrics", "file changed")]


def test_files_that_came_or_went_since_the_seal_are_findings(flat):
    surgery.seal(str(flat))
    (flat / "notes.txt").write_text("mine")
    (flat / "commit_success.txt").unlink()
    assert findings(flat) == [("notes.txt", "file added"), ("commit_success.txt", "file missing")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_folder_that_came_beside_sealed_items_is_a_finding(run):
    """A seal names files; an empty folder has none, and Orbax takes it for an item."""
    surgery.seal(str(run), step=1)
    (run / "1/state2").mkdir()
    with ocp.CheckpointManager(run) as manager, pytest.raises((ValueError, KeyError)):
        manager.restore(1)
    assert findings(run, step=1) == [("state2", "folder without a sealed file")]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_run_builds_in_a_step_is_not_sealed_and_told_of_as_long_as_it_is_there(run):
    """Else the seal would miss files of that run once it has ended."""
    left = run / "1/.extra.surgery-tmp-0a1b2c3d"
    left.mkdir()
    (left / "half").write_text("half")
    surgery.seal(str(run), step=1)
    with ocp.CheckpointManager(run) as manager, pytest.raises((ValueError, KeyError)):
        manager.restore(1)
    assert findings(run, step=1) == [(left.name, "folder without a sealed file")]
    notes = surgery.verify(str(run), step=1).notes
    assert any(left.name in note and "`restore(step)` alone fails" in note for note in notes)
    shutil.rmtree(left)
    with ocp.CheckpointManager(run) as manager:
        manager.restore(1)
    assert findings(run, step=1) == []


def test_the_record_of_an_edit_stays_a_plan_when_it_is_sealed(flat, tmp_path):
    apply(flat, tmp_path / "out", {"op": "rescale", "at": "w", "by": 2})
    edited = record_of(tmp_path / "out/surgery.json")
    surgery.seal(str(tmp_path / "out"))
    sealed = record_of(tmp_path / "out/surgery.json")
    for key in ("plan", "draft", "source", "leaves", "history"):
        assert sealed[key] == edited[key]
    assert sealed["digests"]["w"] == edited["digests"]["w"]
    assert sorted(sealed["digests"]) == ["s", "w"]
    assert findings(tmp_path / "out") == []


def test_what_no_longer_holds_refuses_a_seal_until_it_is_asked_for(flat, tmp_path):
    apply(flat, tmp_path / "out", {"op": "rescale", "at": "w", "by": 2})
    other = tmp_path / "other"
    apply(flat, other, {"op": "rescale", "at": "w", "by": 3})
    shutil.copy(tmp_path / "out/surgery.json", other / "surgery.json")
    before = state(other)
    with pytest.raises(CheckpointError, match=r"'w' in '.*other' is not what its digest") as error:
        surgery.seal(str(other))
    assert "--anew" in error.value.problems[0].fix
    assert state(other) == before
    assert surgery.seal(str(other), anew=True).anew == ["w"]
    assert findings(other) == []
    (entry,) = record_of(other / "surgery.json")["history"]
    assert entry["digests"]["w"] == record_of(tmp_path / "out/surgery.json")["digests"]["w"]
    assert "sealed_anew" in entry


def test_a_file_that_changed_since_the_seal_refuses_the_next_one(flat):
    surgery.seal(str(flat))
    surgery.seal(str(flat))
    (flat / "commit_success.txt").write_text("changed")
    with pytest.raises(CheckpointError, match=r"'commit_success\.txt'"):
        surgery.seal(str(flat))
    assert surgery.seal(str(flat), anew=True).anew == ["commit_success.txt"]
    assert findings(flat) == []


def test_a_record_elsewhere_serves_a_checkpoint_that_nobody_may_write_to(flat, tmp_path):
    file = tmp_path / "flat.json"
    before = state(flat)
    surgery.seal(str(flat), to=file)
    assert state(flat) == before
    assert findings(flat) == []
    assert surgery.verify(str(flat)).files_checked == 0
    verdict = surgery.verify(str(flat), like_manifest=file)
    assert (verdict.agrees, verdict.unchecked) == (True, 0)
    assert verdict.files_checked == len(before)
    surgery.seal(str(flat))  # its own record is none of the files of the other
    assert findings(flat, like_manifest=file) == []
    (flat / "commit_success.txt").write_text("changed")
    assert findings(flat, like_manifest=file) == [("commit_success.txt", "file changed")]
    with pytest.raises(DestinationError, match="exists"):
        surgery.seal(str(flat), to=file)
    with pytest.raises(DestinationError, match="inside the checkpoint"):
        surgery.seal(str(flat), to=flat / "record.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_where_nothing_may_be_written_the_way_out_is_named(flat):
    flat.chmod(0o555)
    try:
        with pytest.raises(DestinationError) as error:
            surgery.seal(str(flat))
    finally:
        flat.chmod(0o755)
    assert "--to FILE" in error.value.problems[0].fix


@pytest.mark.parametrize("moment", ["digested_leaves", "hashed_files", "put_record"])
def test_a_step_that_vanishes_while_it_is_sealed_is_named_and_nothing_is_left(
    run, monkeypatch, moment
):
    whole = getattr(sealing, moment)

    def vanishing(*arguments, **settings):
        shutil.rmtree(run / "1")
        return whole(*arguments, **settings)

    monkeypatch.setattr(sealing, moment, vanishing)
    with pytest.raises(CheckpointError, match=r"'.*run/1' is gone"):
        surgery.seal(str(run), step=1)
    assert not (run / "1").exists()


def test_a_step_that_changes_while_it_is_sealed_is_refused(flat, monkeypatch):
    whole = sealing.hashed_files

    def changing(*arguments):
        (flat / "commit_success.txt").write_text("changed")
        return whole(*arguments)

    monkeypatch.setattr(sealing, "hashed_files", changing)
    with pytest.raises(CheckpointError, match="changed while it was sealed"):
        surgery.seal(str(flat))
    assert not (flat / "surgery.json").exists()


def test_a_manager_deletes_steps_while_they_are_sealed(tmp_path):
    """A real race: whichever comes first, each step is sealed or gone, and no record is left in one that goes."""
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in range(8):
            manager.save(step, args=ocp.args.StandardSave({"w": np.ones((300, 300))}))
        manager.wait_until_finished()
        refusals = []

        def seal_all():
            for step in range(8):
                try:
                    surgery.seal(f"{tmp_path / 'run'}@{step}")
                except Exception as error:  # noqa: BLE001 - what came is looked at below
                    refusals.append(error)

        thread = threading.Thread(target=seal_all)
        thread.start()
        for step in range(7):
            try:
                manager.delete(step)
            except (
                OSError
            ):  # the record came, or went again, after the manager had listed the files
                thread.join()
                manager.delete(step)
        thread.join()
    assert all(getattr(error, "exit_code", 70) in (2, 3) for error in refusals), refusals
    left = [path.name for path in (tmp_path / "run").iterdir()]
    assert [name for name in left if name.isdigit()] == ["7"]


def test_a_record_that_comes_into_a_step_that_is_being_deleted_goes_again(tmp_path, monkeypatch):
    """The one instant in which a seal can fail a deletion: it can be repeated, and the step is gone then."""
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(0, args=ocp.args.StandardSave({"w": np.ones(3)}))
        manager.wait_until_finished()
        step = tmp_path / "run/0"

        def rename(draft, target):
            for path in step.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            draft.rename(target)
            with pytest.raises(OSError, match="not empty"):
                step.rmdir()

        monkeypatch.setattr(record_files, "rename", rename)
        with pytest.raises(CheckpointError, match="is gone"):
            surgery.seal(f"{tmp_path / 'run'}@0")
        assert list(step.iterdir()) == []
        manager.delete(0)
    assert not step.exists()


@pytest.mark.parametrize("kind", ["flat", "root"])
def test_a_result_is_sealed_as_it_is_committed(flat, run, tmp_path, kind):
    source, at = (flat, "w") if kind == "flat" else (run, "params/w")
    report = apply(source, tmp_path / "out", {"op": "rescale", "at": at, "by": 2}, seal=True)
    verdict = surgery.verify(str(tmp_path / "out"))
    assert (verdict.agrees, verdict.unchecked) == (True, 0)
    assert verdict.files_checked == report.sealed_files > 0
    again = apply(tmp_path / "out", tmp_path / "again", {"op": "delete", "at": at})
    assert again.sealed_files == 0
    record = next((tmp_path / "again").rglob("surgery.json"))
    assert record_of(record)["files"] == {}
    assert "files" not in record_of(record)["history"][0]
    assert findings(tmp_path / "again") == []


def test_a_result_with_a_damaged_leaf_by_reference_is_not_sealed(tmp_path):
    for name, values in (("a", np.ones(4)), ("b", np.zeros(4))):
        with ocp.PyTreeCheckpointer(use_ocdbt=False) as checkpointer:
            checkpointer.save(tmp_path / name, {"w": values, "v": values})
    surgery.seal(str(tmp_path / "a"))
    shutil.copy(tmp_path / "b/w/0", tmp_path / "a/w/0")
    with pytest.raises(CheckpointError, match=r"'w' in '.*a' is not what its digest"):
        apply(tmp_path / "a", tmp_path / "out", {"op": "rescale", "at": "v", "by": 2}, seal=True)
    assert not (tmp_path / "out").exists()


def test_a_record_that_was_changed_by_hand_is_refused(flat, tmp_path):
    apply(flat, tmp_path / "out", {"op": "rescale", "at": "w", "by": 2})
    file = tmp_path / "out/surgery.json"
    file.write_text(file.read_text().replace('"read_back": 1', '"read_back": 9'))
    with pytest.raises(CheckpointError, match="is not what was written"):
        apply(tmp_path / "out", tmp_path / "again", {"op": "rescale", "at": "w", "by": 2})
    assert findings(tmp_path / "out") == [("surgery.json", "record")]


def test_a_seal_that_no_longer_holds_is_said_first(flat):
    surgery.seal(str(flat))
    file = flat / "surgery.json"
    file.write_text(file.read_text().replace('"leaves": ', '"leaves":  '))
    verdict = surgery.verify(str(flat))
    assert verdict.against == f"nothing: '{file}' is not what was sealed"
    assert (verdict.agrees, verdict.checked, verdict.has_lost_digests) == (False, 0, True)
    assert findings(flat) == [("surgery.json", "record")]


def test_nan_is_a_finding_and_infinities_are_named(tmp_path):
    tree = {
        "nan": np.array([[1, np.nan], [np.nan, 2]], np.float32),
        "inf": np.array([np.inf, -np.inf, 1]),
        "complex": np.array([1 + 1j * np.nan], np.complex64),
        "ints": np.arange(3),
    }
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "c", tree)
    verdict = surgery.verify(str(tmp_path / "c"))
    found = [(f.path, f.what, f.detail) for f in verdict.findings]
    assert found == [
        ("complex", "NaN", "1 of 1 values are NaN"),
        ("nan", "NaN", "2 of 4 values are NaN"),
    ]
    assert verdict.infinities == {"inf": 2}
    assert "infinite values in 'inf' (2)" in verdict.notes
    allowed = surgery.verify(str(tmp_path / "c"), allow_non_finite=True)
    assert allowed.agrees
    assert "NaN in 'complex' (1), 'nan' (2)" in allowed.notes


def test_a_seal_says_what_metadata_orbax_could_not_read(flat):
    (flat / "_sharding").write_bytes(b"{")
    (note,) = surgery.seal(str(flat)).notes
    assert note.startswith("sealed as it is: '_sharding': not a JSON object")
    assert findings(flat) == [("_sharding", "metadata")]


def test_a_snapshot_of_links_is_sealed_by_what_they_lead_to(flat, tmp_path):
    """As a hub's cache has them: every file a link to a blob."""
    snapshot, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(p for p in flat.rglob("*") if p.is_file())):
        link = snapshot / file.relative_to(flat)
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, blobs / str(number))
        link.symlink_to(blobs / str(number))
    surgery.seal(str(snapshot))
    assert findings(snapshot) == []
    marker = snapshot / "commit_success.txt"
    marker.resolve().write_text("changed")
    assert findings(snapshot) == [("commit_success.txt", "file changed")]


@pytest.mark.parametrize("kind", ["flat", "root"])
def test_a_file_that_changed_since_the_seal_is_not_copied_into_a_result(flat, run, tmp_path, kind):
    source, at, file = {
        "flat": (flat, "w", "commit_success.txt"),
        "root": (run, "params/w", "metrics/metrics"),
    }[kind]
    surgery.seal(str(source))
    halve = {"op": "rescale", "at": at, "by": 0.5}
    apply(source, tmp_path / "whole", halve)
    place = source if kind == "flat" else source / "2"
    (place / file).write_text('{"loss": 0.25}')
    with pytest.raises(CheckpointError, match=f"the file '{file}' in .* is not what was sealed"):
        apply(source, tmp_path / "out", halve, seal=True)
    assert not (tmp_path / "out").exists()
    surgery.seal(str(source), anew=True)
    apply(source, tmp_path / "out", halve, seal=True)


def test_no_edit_takes_a_sealed_step_for_whole_from_which_a_file_has_gone_or_to_which_one_came(
    run, tmp_path
):
    surgery.seal(str(run))
    step, halve = run / "2", {"op": "rescale", "at": "params/w", "by": 0.5}
    aside = tmp_path / "aside"
    for key in record_of(step / "surgery.json")["files"]:
        (step / key).rename(aside)
        with pytest.raises(CheckpointError):  # of those that are needed to open it, another one
            apply(run, tmp_path / "out", halve)
        aside.rename(step / key)
    for place in (step, step / "ema", step / "metrics"):
        (place / "new").write_text("{}")
        with pytest.raises(CheckpointError, match="was not there when it was sealed"):
            apply(run, tmp_path / "out", halve)
        (place / "new").unlink()
    assert not (tmp_path / "out").exists()
    assert apply(run, tmp_path / "out", halve).verified


@pytest.mark.parametrize("use_zarr3", [False, True])
@pytest.mark.parametrize("is_step", [False, True])
def test_a_seal_holds_where_each_leaf_has_a_folder_and_the_metadata_is_lost(
    tmp_path, use_zarr3, is_step
):
    """Such a tree is inferred from names; its record must not be looked for where that of an inferred tree stands."""
    item = tmp_path / "one" / "state" if is_step else tmp_path / "one"
    handler = ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=use_zarr3)
    with ocp.Checkpointer(handler) as checkpointer:
        checkpointer.save(item, {"w": np.arange(4.0), "v": np.ones(4)})
    place = tmp_path / "one"
    if is_step:
        (place / "_CHECKPOINT_METADATA").write_text(
            json.dumps({"item_handlers": {"state": handler.typestr()}})
        )
    surgery.seal(str(place))
    shutil.copytree(item / "v", item / "w", dirs_exist_ok=True)
    for name in ("_METADATA", "_sharding"):
        (item / name).unlink(missing_ok=True)

    found = findings(place)

    assert ("w", "values") in found
    assert (f"{item.relative_to(place) / '_METADATA'}", "file missing") in found
    with pytest.raises(CheckpointError, match="not what its digest on record says"):
        surgery.seal(str(place))
    with pytest.raises(CheckpointError, match=r"_METADATA' of .* is gone"):
        apply(place, tmp_path / "out", {"op": "rescale", "at": "v", "by": 2})
    assert not list(tmp_path.glob("*one.surgery.json"))


def test_a_damaged_data_file_of_an_item_that_was_not_chosen_is_not_sealed_into_a_result(
    run, tmp_path
):
    surgery.seal(str(run))
    data = max((run / "2/ema").rglob("d/*"), key=lambda path: path.stat().st_size)
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    halve = {"op": "rescale", "at": "w", "by": 0.5}
    options = {"item": "params", "link": "never"}
    apply(run, tmp_path / "plain", halve, **options)
    with pytest.raises(CheckpointError, match=r"the file 'ema/.*' in .* is not what was sealed"):
        apply(run, tmp_path / "out", halve, seal=True, **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("older", [None, b"an older record"])
def test_a_record_that_no_longer_holds_gives_its_name_back_to_the_older_one(older, tmp_path):
    target = tmp_path / "step" / "surgery.json"
    target.parent.mkdir()
    if older is not None:
        target.write_bytes(older)
    checks = iter([None, CheckpointError("the step changed")])

    def check():
        if (error := next(checks)) is not None:
            raise error

    with pytest.raises(CheckpointError, match="the step changed"):
        put_record(target, b"a newer one", check)
    assert (target.read_bytes() if target.exists() else None) == older
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["surgery.json"] * (
        older is not None
    )


@pytest.mark.parametrize("moment", ["digested_leaves", "hashed_files"])
def test_a_file_that_vanishes_while_it_is_sealed_is_named(flat, monkeypatch, moment):
    whole = getattr(sealing, moment)
    lost = next(path for path in sorted((flat / "d").iterdir()) if path.is_file())

    def losing(*arguments, **settings):
        lost.unlink(missing_ok=True)
        return whole(*arguments, **settings)

    monkeypatch.setattr(sealing, moment, losing)
    with pytest.raises(CheckpointError) as caught:
        surgery.seal(str(flat))
    (problem,) = caught.value.problems
    assert f"'{lost}' is " in problem.what
    assert not list(flat.parent.glob(f"*{flat.name}.surgery.json"))


@pytest.mark.parametrize("use_ocdbt", [True, False])
@pytest.mark.parametrize(
    "edit",
    [
        {"op": "rescale", "at": "v", "by": 2},
        {"op": "rename", "at": "w", "to": "u"},
        {"op": "concat", "at": ["v", "w"], "to": "c", "axis": 0},
        {"op": "unstack", "at": "w", "to": "w_{0..3}"},
    ],
    ids=lambda edit: edit["op"],
)
def test_what_is_damaged_in_the_source_is_said_of_the_source(tmp_path, use_ocdbt, edit):
    """Of what is taken as it is stored nothing was read before it is sealed."""
    source = tmp_path / "ck"
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=use_ocdbt)) as checkpointer:
        w, v = np.random.default_rng(0).standard_normal((2, 4, 999))
        checkpointer.save(source, {"w": w, "v": v})
    files = [f for f in source.rglob("*") if f.is_file() and "v" not in f.parent.name]
    values = max(files, key=lambda file: file.stat().st_size)
    values.write_bytes(bytes(40) + values.read_bytes()[40:])
    with pytest.raises(CheckpointError) as caught:
        apply(source, tmp_path / "new", edit, seal=True)
    assert caught.value.exit_code == 3
    assert f"in '{source}'" in caught.value.problems[0].what
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ck"]
