"""`doctor` says of everything in a run directory whether it is whole, as Orbax would find, and changes nothing."""

import io
import json
import os
import re
import shlex
import shutil
import time
from pathlib import Path

import jax
import numpy as np
import optax
import orbax.checkpoint as ocp
import pytest
from orbax.checkpoint import v1

from surgery_cli import surgery
from surgery_cli.cli.rendering import examination
from surgery_cli.console.page import Page
from surgery_cli.errors import CheckpointError, MissingError
from surgery_cli.examination import examine
from surgery_cli.salvage.place import fingerprint
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.locate.location import locate
from tests.cli.conftest import SAMPLES
from tests.cli.conftest import surgery as command  # noqa: F401 - a fixture
from tests.salvage.conftest import corpus  # noqa: F401 - a fixture
from tests.salvage.test_corpus import CASES, NOTHING_LEFT, restored

TREE = {"w": np.random.default_rng(0).normal(size=(40, 40)).astype("f4"), "b": np.ones(3, "f4")}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The steps 1 to 6 of a manager, each with metrics, that no test writes to."""
    root = tmp_path_factory.mktemp("saved") / "run"
    options = ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["loss"])
    with ocp.CheckpointManager(root, options=options) as manager:
        for step in range(1, 7):
            tree = jax.tree.map(lambda leaf, step=step: leaf * step, TREE)
            manager.save(step, args=ocp.args.StandardSave(tree), metrics={"loss": 0.5})
    return root


@pytest.fixture
def run(saved, tmp_path):
    return Path(shutil.copytree(saved, tmp_path / "run"))


def states(root, **options):
    options = {"settled_seconds": 0, **options}
    return {place.path: place.state for place in surgery.doctor(str(root), **options).places}


def place(root, name, **options):
    options = {"settled_seconds": 0, **options}
    found = surgery.doctor(str(root), **options).places
    return next(one for one in found if one.path == name)


def flipped(file, at=0.5):
    raw = bytearray(file.read_bytes())
    raw[int(len(raw) * at)] ^= 1
    file.write_bytes(raw)


def restorable(root, step):
    """Whether Orbax restores a step with its original target, and all that was saved with it."""
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, TREE)
    with ocp.CheckpointManager(root, item_names=("default", "metrics")) as manager:
        args = ocp.args.Composite(
            default=ocp.args.StandardRestore(target), metrics=ocp.args.JsonRestore()
        )
        try:
            found = manager.restore(step, args=args)
        except Exception:  # noqa: BLE001 - whatever Orbax says
            return False
    return np.array_equal(found["default"]["w"], TREE["w"] * step)


DAMAGES = {
    1: lambda step: None,
    2: lambda step: (step / "default/manifest.ocdbt").unlink(),
    3: lambda step: os.truncate(step / "default/_METADATA", 100),
    4: lambda step: shutil.rmtree(step / "metrics"),
    5: lambda step: [os.truncate(file, 10) for file in step.glob("default/ocdbt.process_0/d/*")],
    6: lambda step: [shutil.rmtree(step), step.mkdir()],
}


def test_every_step_of_a_manager_is_whole_where_orbax_restores_it_and_nowhere_else(run):
    for step, damage in DAMAGES.items():
        damage(run / str(step))
    before = fingerprint(run)

    found = {one.step: one.state for one in surgery.doctor(str(run), settled_seconds=0).places}

    assert fingerprint(run) == before
    with ocp.CheckpointManager(run) as manager:
        assert sorted(found) == sorted(manager.all_steps())
    assert {step: state == "whole" for step, state in found.items()} == {
        step: restorable(run, step) for step in DAMAGES
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(CASES))
def test_what_is_called_whole_orbax_restores_and_of_the_rest_it_is_said_what_is_left(
    corpus,  # noqa: F811
    number,
):
    case = corpus[number]
    if number in NOTHING_LEFT:
        with pytest.raises((CheckpointError, MissingError)):
            surgery.doctor(str(case.broken))
        return

    (glanced,) = surgery.doctor(str(case.broken), settled_seconds=0).places
    (read,) = surgery.doctor(str(case.broken), settled_seconds=0, read_data=True).places

    wrong = {name for name in case.leaves if case.decodes_wrong(name)}
    lost = {name for name, one in case.leaves.items() if one["state"] != "whole"} - wrong
    if read.state == "whole":
        assert not lost
        values = restored(_tree(case.broken))
        assert all(
            values[name].tobytes() == case.values[name].tobytes()
            for name in case.leaves.keys() - wrong
            if name in case.values and name in values
        )
        return
    assert "surgery rescue" in read.todo or not read.whole_leaves
    assert read.leaves - read.whole_leaves >= len(lost)
    assert glanced.whole_leaves >= read.whole_leaves
    assert (read.whole_leaves > 0) == any(one["state"] == "whole" for one in case.leaves.values())
    assert "rm " not in read.todo


def _tree(broken):
    return broken / "state" if (broken / "state").exists() else broken


def test_a_step_may_be_named_by_its_number(run):
    """As everywhere, whether it opens or not."""
    shutil.rmtree(run / "4" / "default" / "d")
    for number in (3, 4):
        named, plain = (states(text) for text in (f"{run}@{number}", run / str(number)))
        assert named == plain
    with pytest.raises(MissingError):
        surgery.doctor(f"{run}@77")


def test_what_was_left_in_a_step_is_named_with_what_removes_it(run, command):  # noqa: F811
    here = Owner.here()
    gone = Owner(here.host, here.machine, 2**22 - 1, "1")
    places = []
    for name, owner in (("mine", here), ("dead", gone)):
        places.append(run / "2" / f".{name}.surgery-tmp-0123456{len(places)}")
        shutil.copytree(run / "1", places[-1] / name)
        (places[-1] / ".surgery-owner.json").write_bytes(_json(owner))
    for path, prefix in ((run, "2/"), (run / "2", "")):
        found = {one.path: one for one in surgery.doctor(str(path), settled_seconds=0).places}
        states = [found[f"{prefix}{place.name}"].state for place in places]
        assert states == ["writing", "leftover"]
        assert found["2" if prefix else "."].state == "whole"
    told = found[places[1].name].todo
    clean = re.search("`surgery (clean [^`]*)`", told)[1]
    assert command(*shlex.split(clean)).code == 0
    assert [place.exists() for place in places] == [True, False]


def test_leftovers_are_told_by_whose_they_are_and_none_is_removed(run, tmp_path):
    (run / "6").rename(run / "6.orbax-checkpoint-tmp-1795167049873362")
    (run / "5").rename(run / "5.surgery-old")
    here = Owner.here()
    gone = Owner(here.host, here.machine, 2**22 - 1, "1")
    for name, owner in (("7", here), ("8", gone), ("9", Owner("far", "00000000", 1, "1"))):
        staging = run / f".{name}.surgery-tmp-0123456{name}"
        shutil.copytree(run / "1", staging / name)
        (staging / ".surgery-owner.json").write_bytes(_json(owner))
    (run / "trash").mkdir()
    (run / "4").rename(run / "trash/4")
    (run / "2/default/.manifest.ocdbt.Xy12Qa").write_bytes(b"part")
    (run / "2/default/manifest.ocdbt").unlink()
    (run / "1/default/manifest.ocdbt.__lock").write_bytes(b"")
    before = fingerprint(run)

    found = {one.path: one for one in surgery.doctor(str(run), settled_seconds=0).places}

    assert fingerprint(run) == before
    assert {name: (one.state, one.of) for name, one in found.items()} == {
        "1": ("whole", ""),
        "2": ("damaged", "rsync"),
        "3": ("whole", ""),
        "6.orbax-checkpoint-tmp-1795167049873362": ("unfinished", "Orbax"),
        "5.surgery-old": ("leftover", "surgery"),
        ".7.surgery-tmp-01234567": ("writing", "surgery"),
        ".8.surgery-tmp-01234568": ("leftover", "surgery"),
        ".9.surgery-tmp-01234569": ("leftover", "surgery"),
        "trash": ("apart", ""),
    }
    assert found["1"].temporary == {"default/manifest.ocdbt.__lock": 0}
    assert found["2"].todo.startswith("do the copy again; else `surgery rescue ")
    assert f"`surgery doctor {run}/trash` looks at them" in found["trash"].todo
    unfinished = found["6.orbax-checkpoint-tmp-1795167049873362"]
    assert f"`surgery rescue {run}/{unfinished.path} NEW/6` writes" in unfinished.todo
    dead, far = found[".8.surgery-tmp-01234568"], found[".9.surgery-tmp-01234569"]
    assert dead.todo == (
        f"`surgery clean {run}/{dead.path}` removes it, with 2 of 2 leaves that look whole"
    )
    assert far.todo.startswith(f"if that run is over, `surgery clean {run}/{far.path} --stale`")
    assert "mv" in found["5.surgery-old"].todo
    # the command that is named does what is said, and no more
    assert surgery.clean(f"{run}/{dead.path}").removed[0].path == f"{run}/{dead.path}"
    assert not (run / dead.path).exists()
    assert surgery.clean(f"{run}/{far.path}").removed == []


def _json(owner):
    return json.dumps({name: getattr(owner, name) for name in owner.__struct_fields__}).encode()


@pytest.fixture
def meanwhile(monkeypatch):
    """What somebody else does while the doctor waits before it looks again."""
    deeds = []

    class Clock:
        time = staticmethod(time.time)

        @staticmethod
        def sleep(_):
            for deed in deeds:
                deed()

    monkeypatch.setattr(examine, "time", Clock)
    return deeds


def test_what_changes_while_it_is_looked_at_is_being_written_and_not_damaged(run, meanwhile):
    (run / "6").rename(run / "6.orbax-checkpoint-tmp")
    (run / "5/default/manifest.ocdbt").unlink()
    meanwhile.append(lambda: (run / "6.orbax-checkpoint-tmp/default/d/new").write_bytes(b"1"))
    meanwhile.append((run / "5/default/_METADATA").unlink)

    report = surgery.doctor(str(run), settled_seconds=600)

    assert {one.path: one.state for one in report.places if one.state != "whole"} == {
        "5": "writing",
        "6.orbax-checkpoint-tmp": "writing",
    }
    assert report.exit_code == 0


def test_a_save_that_ends_meanwhile_is_whole_and_a_step_that_goes_is_gone(run, meanwhile):
    (run / "6").rename(run / "6.orbax-checkpoint-tmp")
    (run / "1/default/manifest.ocdbt").unlink()
    meanwhile.append(lambda: (run / "6.orbax-checkpoint-tmp").rename(run / "6"))
    meanwhile.append(lambda: shutil.rmtree(run / "1"))
    assert states(run, settled_seconds=600) == dict.fromkeys("23456", "whole")


def test_what_changed_a_moment_ago_is_not_called_damaged_until_it_has_settled(run, meanwhile):
    (run / "6/default/manifest.ocdbt").unlink()
    found = place(run, "6", settled_seconds=600)
    assert (found.state, found.why[-1].split(" ago")[1]) == (
        "unsettled",
        ": a job may still be at work there",
    )
    assert "look again later" in found.todo
    assert states(run)["6"] == "damaged"


def test_with_data_read_flipped_bits_are_found_where_a_digest_is_on_record(run):
    for step in (1, 2):
        data = max((run / f"{step}/default/ocdbt.process_0/d").iterdir(), key=_size)
        if step == 1:
            surgery.seal(str(run), step=1)
        flipped(data, 0.2)

    glanced = states(run)
    read = surgery.doctor(str(run), settled_seconds=0, read_data=True).places

    assert glanced["1"] == glanced["2"] == "whole"
    assert (read[0].state, read[0].checked) == ("damaged", 2)
    assert read[2].unchecked == 2
    assert "surgery rescue" in read[0].todo


def test_what_is_gone_since_a_seal_or_a_seal_that_does_not_hold_is_damage(run):
    for step in (1, 2, 3):
        surgery.seal(str(run), step=step)
    (run / "1/metrics/metrics").unlink()
    record = run / "2/surgery.json"
    record.write_bytes(record.read_bytes().replace(b'"leaves": 2', b'"leaves": 3'))
    rows = {row.path: row for row in surgery.doctor(str(run), settled_seconds=0).places}
    assert {name: row.state for name, row in rows.items() if row.state != "whole"} == {
        "1": "damaged",
        "2": "damaged",
    }
    assert rows["1"].why[-1] == "`metrics/metrics` is gone since it was sealed"
    assert rows["1"].todo.startswith(f"`surgery verify {run}/1` says all that is not as it is")
    assert "surgery.json' is not what was sealed" in rows["2"].why[0]


def _size(file):
    return file.stat().st_size


def test_space_is_counted_once_and_what_nothing_refers_to_is_dead(run):
    one, two = place(run, "1"), place(run, "2")
    shutil.copytree(run / "1", run / "10", copy_function=os.link)
    (run / "2/default/d/0123456789abcdef0123456789abcdef").write_bytes(bytes(3 << 20))

    report = surgery.doctor(str(run), settled_seconds=0)

    inodes = {file.stat().st_ino: _size(file) for file in run.rglob("*") if file.is_file()}
    assert report.bytes == sum(inodes.values()) - _beside(run)
    rows = {row.path: row for row in report.places}
    assert rows["10"].bytes == one.bytes
    assert rows["2"].dead_bytes == two.dead_bytes + (3 << 20)
    assert "surgery compact" in rows["2"].todo
    assert rows["1"].todo == ""
    assert report.exit_code == 0
    assert "(a file that several share counts once)" in _text(report)
    shutil.rmtree(run / "10")
    assert "counts once" not in _text(surgery.doctor(str(run), settled_seconds=0))


def _text(report):
    stream = io.StringIO()
    examination.render(report, Page(stream))
    return stream.getvalue()


def _beside(run):
    """Bytes of files that belong to the run as a whole."""
    return sum(_size(file) for file in run.iterdir() if file.is_file())


def test_a_step_that_has_lost_its_tree_and_what_says_so_is_damaged(run):
    (run / "2/_CHECKPOINT_METADATA").unlink()
    shutil.rmtree(run / "2/default")
    found = place(run, "2")
    assert (found.state, found.why) == (
        "damaged",
        ["it holds no tree of leaves, and other steps do"],
    )


@pytest.mark.parametrize("sample", ["digits_manager", "digits_v1", "towers", "letters_run"])
def test_healthy_samples_are_whole_whatever_is_named(sample):
    root = SAMPLES / sample
    assert set(states(root).values()) == {"whole"}
    step = locate(str(root)).step_directory
    assert states(step) == {".": "whole"}


def test_a_run_of_flax_and_its_draft(tmp_path):
    from flax.training import checkpoints

    for step in (1, 2):
        checkpoints.save_checkpoint_multiprocess(tmp_path / "flax", TREE, step, keep=9)
    (tmp_path / "flax/checkpoint_tmp").write_bytes(b"\x82")
    (tmp_path / "flax/checkpoint_3").write_bytes(b"")
    assert states(tmp_path / "flax") == {
        "checkpoint_1": "whole",
        "checkpoint_2": "whole",
        "checkpoint_3": "damaged",
        "checkpoint_tmp": "unfinished",
    }


def test_the_command_prints_healthy_steps_as_one_line_and_ends_with_what_it_found(command, run):  # noqa: F811
    whole = command("doctor", run)
    assert whole.code == 0
    assert "\nwhole      1, 2 … 6 (6 steps)  " in whole.out
    (run / "3/default/manifest.ocdbt").unlink()

    found = command("doctor", run, "--settled", "0")

    assert found.code == 1
    lines = [line.split("  ")[0] for line in found.out.splitlines()[4:] if line[0] != " "]
    assert lines == ["whole", "damaged", "whole"]
    assert "--fill-from" not in found.out
    assert command("doctor", run, "--settled", "0", "--json").document["counts"] == {
        "whole": 5,
        "damaged": 1,
    }
    assert command("doctor", run / "nothing").code == 2
    assert command("doctor", run / "1/metrics").code == 3


def test_a_thousand_steps_stay_a_page(command, run):  # noqa: F811
    for step in range(7, 200):
        shutil.copytree(run / "1/metrics", run / f"{step}/metrics")
    for step in range(7, 200, 2):
        (run / str(step) / "metrics/metrics").unlink()
    shown = command("doctor", run, "--settled", "0").out.splitlines()
    assert len(shown) < 200
    assert len(command("doctor", run, "--settled", "0", "--verbose").out.splitlines()) > 200
    assert any("more (`--verbose` lists them)" in line for line in shown)


def test_what_has_lost_its_structure_is_rescued_like_a_whole_step_as_it_says(tmp_path):
    tree = {"w": np.ones(3, "f4"), "opt": [np.ones(2, "f4"), optax.EmptyState(), ()]}
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (1, 2, 3):
            manager.save(step, args=ocp.args.StandardSave(tree))
    (tmp_path / "run/1/default/_METADATA").unlink()
    os.truncate(tmp_path / "run/3/default/_METADATA", 100)

    for step in ("1", "3"):
        row = place(tmp_path / "run", step)
        assert row.todo.startswith(
            f"`surgery rescue {tmp_path}/run/{step} NEW/{step} --like {tmp_path}/run/2` writes"
        )
        bare = surgery.rescue(str(tmp_path / "run" / step))
        assert bare.structure_lacks == ["empty nodes", "None", "types of containers"]
        new = tmp_path / "new" / step
        rescued = surgery.rescue(
            str(tmp_path / "run" / step), str(new), like=f"{tmp_path}/run@2", allow_partial=True
        )
        assert not rescued.structure_lacks
        with ocp.StandardCheckpointer() as checkpointer:
            found = checkpointer.restore(new / "default", target)
        assert jax.tree.structure(found) == jax.tree.structure(tree)


@pytest.mark.parametrize(
    ("file", "state"), [("_CHECKPOINT_METADATA", "whole"), ("default/_sharding", "damaged")]
)
def test_what_orbax_still_restores_without_a_damaged_file_is_said(tmp_path, file, state):
    tree = {"w": jax.numpy.ones(3)}
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, tree)
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(5, args=ocp.args.StandardSave(tree))
    os.truncate(tmp_path / "run/5" / file, 10)
    row = place(tmp_path / "run", "5")
    assert row.state == state
    assert "Orbax restores" in row.why[0]
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.restore(5, args=ocp.args.StandardRestore(target))


def test_what_was_saved_without_shardings_is_whole_and_what_a_restore_needs_is_said(tmp_path):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        manager.save(1, args=ocp.args.StandardSave({"w": jax.numpy.ones(3)}))
    (tmp_path / "run/1/default/_sharding").unlink()
    row = place(tmp_path / "run", "1")
    assert row.state == "whole"
    assert "there is no `_sharding`" in row.why[0]
    assert "there is no `_sharding`" in surgery.verify(str(tmp_path / "run")).notes[0]


def test_of_a_save_that_never_was_whole_nothing_is_said_to_be_copied_again(run):
    unfinished = run / "7.orbax-checkpoint-tmp"
    shutil.copytree(run / "6", unfinished)
    for file in unfinished.rglob("*"):
        if file.is_file() and file.name != "_METADATA":
            file.unlink()
    row = place(run, unfinished.name)
    assert row.state == "unfinished"
    assert "copy it again" not in row.todo
    assert "never was whole" in row.todo


PUT_BESIDE = {
    "nothing": lambda step: None,
    "a file": lambda step: (step / "x.txt").write_text("x"),
    "an empty folder": lambda step: (step / "extra").mkdir(),
    "a hidden folder": lambda step: (step / ".extra").mkdir(),
    "a folder of folders": lambda step: (step / "extra/inside").mkdir(parents=True),
    "a folder of JSON": lambda step: [
        (step / "extra").mkdir(),
        (step / "extra/metadata").write_text("{}"),
    ],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("beside", PUT_BESIDE)
@pytest.mark.parametrize("is_sealed", [False, True])
def test_what_fails_only_a_restore_without_arguments_is_a_note(run, beside, is_sealed):
    if is_sealed:
        surgery.seal(str(run / "1"))
    PUT_BESIDE[beside](run / "1")
    with ocp.CheckpointManager(run) as manager:
        try:
            is_restored = manager.restore(1) is not None
        except ValueError:
            is_restored = False
    assert restorable(run, 1)
    row = place(run, "1")
    said = [why for why in row.why if "only with arguments" in why]
    assert (row.state, bool(said)) == ("whole", not is_restored)
    notes = surgery.verify(str(run / "1")).notes
    assert any("only with arguments" in str(note) for note in notes) != is_restored


@pytest.mark.parametrize("harm", [lambda file: os.truncate(file, 10), Path.unlink])
def test_v1_recognises_what_is_rescued_without_what_it_says_of_the_step(tmp_path, harm):
    tree = {"w": jax.numpy.ones((4, 4)), "n": 3}
    v1.save(tmp_path / "broken", tree)
    harm(tmp_path / "broken/_CHECKPOINT_METADATA")
    surgery.rescue(str(tmp_path / "broken"), str(tmp_path / "new"))
    assert v1.load(tmp_path / "new")["n"] == 3


@pytest.mark.parametrize("copy", ["0001", "1 (1)", "1.bak"])
def test_what_no_manager_takes_for_a_step_is_named_with_its_bytes(run, copy):
    shutil.copytree(run / "1", run / copy)
    with ocp.CheckpointManager(run) as manager:
        assert manager.all_steps().count(1) == 1

    found = surgery.doctor(str(run), settled_seconds=0)

    (row,) = [row for row in found.places if row.path == copy]
    assert any(text in row.why[-1] for text in ("its name is no step's", "'1' is step 1, too"))
    assert row.bytes > 0


@pytest.mark.parametrize("kind", ["save", "step", "staging", "set aside"])
def test_nothing_may_go_before_all_of_it_was_searched(run, monkeypatch, kind):
    """As with data of over a gigabyte: what no manifest leads to is looked for by `rescue`, and by `--read-data`."""
    monkeypatch.setattr("surgery_cli.salvage.glance._SCANNED_BYTES", 0)
    name = {
        "save": "7.orbax-checkpoint-tmp",
        "step": "7",
        "staging": ".7-new.surgery-tmp-0f3a9c21",
        "set aside": "7.surgery-old",
    }[kind]
    broken = run / name
    shutil.copytree(run / "6", broken)
    for manifest in broken.rglob("manifest.ocdbt"):
        manifest.unlink()
    shutil.rmtree(broken / "default" / "d")

    found = place(run, name)
    assert not found.whole_leaves
    assert found.state != "whole"
    assert "searched" in found.todo or "brings it back" in found.todo
    for said in ("may go", "no whole leaf", "never was whole"):
        assert said not in found.todo
    if kind in ("save", "step"):
        read = place(run, name, read_data=True)
        assert (read.whole_leaves, read.leaves, read.at_least) == (2, 2, False)
        assert f"surgery rescue {broken}" in read.todo
        assert "searched" not in read.todo


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("lost", ["state", "ema", "data"])
def test_leaves_are_in_their_place_only_if_no_tree_on_record_is_gone(tmp_path, lost, is_sealed):
    with ocp.CheckpointManager(tmp_path / "run") as manager:
        for step in (1, 2):
            items = {name: ocp.args.StandardSave(TREE) for name in ("state", "ema")}
            args = ocp.args.Composite(**items, data=ocp.args.JsonSave({"seen": step}))
            manager.save(step, args=args)
    if is_sealed:
        surgery.seal(str(tmp_path / "run" / "2"))
    shutil.rmtree(tmp_path / "run" / "2" / lost)

    found = place(tmp_path / "run", "2")

    assert found.state == "damaged"
    assert f"'{lost}'" in " ".join([*found.why, found.todo])
    if not is_sealed:
        assert ("every leaf is in its place" in found.todo) is (lost == "data")
        assert f"copy '{lost}' again" in found.todo


@pytest.mark.parametrize("damage", ["added", "folder", "changed", "leaf"])
def test_files_that_are_not_as_they_were_sealed_are_no_leaves(saved, tmp_path, command, damage):  # noqa: F811
    run = shutil.copytree(saved, tmp_path / "run")
    surgery.seal(str(run / "6"))
    if damage == "added":
        (run / "6/note.txt").write_text("new")
    elif damage == "folder":
        (run / "6/folder").mkdir()
    elif damage == "changed":
        metadata = run / "6/_CHECKPOINT_METADATA"
        metadata.write_bytes(metadata.read_bytes() + b" ")
    else:
        data = max((run / "6").rglob("d/*"), key=lambda file: file.stat().st_size)
        raw = bytearray(data.read_bytes())
        raw[len(raw) // 3] ^= 1
        data.write_bytes(raw)
    (seen,) = (one for one in surgery.doctor(str(run), read_data=True).places if one.path == "6")
    assert seen.state == "damaged"
    assert (seen.whole_leaves == seen.leaves) == (damage != "leaf")
    assert ("surgery rescue" in seen.todo) == (damage == "leaf")
    if damage == "folder":
        assert "take 'folder' away" in seen.todo
        assert "surgery seal" not in seen.todo
    elif damage != "leaf":
        anew = " --anew" if damage == "changed" else ""
        assert f"`surgery seal {run}/6{anew}` records what is there" in seen.todo
        assert command("seal", run / "6", *anew.split()).code == 0
        (seen,) = (o for o in surgery.doctor(str(run), read_data=True).places if o.path == "6")
        assert seen.state == "whole"


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_what_metadata_cannot_show_is_said_and_found_where_data_is_read(command, tmp_path, share):  # noqa: F811
    saved = tmp_path / "ck"
    ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False)).save(saved, TREE)
    chunk = saved / "w" / "0.0"
    os.truncate(chunk, int(chunk.stat().st_size * share))
    with pytest.raises(Exception):  # noqa: B017, PT011 - the premise: Orbax refuses it, in whatever words
        ocp.PyTreeCheckpointer().restore(saved)

    said = " ".join(command("doctor", str(saved), "--settled", "0").out.split())
    assert "metadata alone" in said
    assert "a chunk that is cut" in said
    assert place(saved, ".", read_data=True).state == "damaged"


@pytest.mark.parametrize(
    ("name", "inside", "mark"),
    [
        *[(name, ("a", "3"), True) for name in ("mine", "7", "step_7")],
        *[(name, ("4", "3"), False) for name in ("mine", "run_7")],
    ],
)
def test_a_folder_of_checkpoints_beside_steps_is_named_as_that(run, name, inside, mark):
    """It was called damaged, without a whole leaf, or whole where only one of them was looked at."""
    for one in inside:
        shutil.copytree(run / "1" / "default", run / name / one)
        if mark:
            shutil.copy(run / "1" / "_CHECKPOINT_METADATA", run / name / one)
    found = place(run, name)
    assert (found.state, found.todo) == ("apart", f"`surgery doctor {run / name}` looks at them")
    assert states(run / name) == dict.fromkeys(inside, "whole")
    assert states(run) == {str(n): "whole" for n in range(1, 7)} | {name: "apart"}


@pytest.mark.parametrize("beside", ["nothing", "a checkpoint", "a file"])
@pytest.mark.parametrize("levels", [1, 2])
def test_a_folder_of_runs_is_looked_at_alike_whatever_stands_beside(
    run,
    tmp_path,
    command,  # noqa: F811
    beside,
    levels,
):
    """Each is named with the command that looks at it; nothing is said of what is in it, and that is said."""
    folder = tmp_path / "runs"
    for name in ("a", "b"):
        shutil.copytree(run, folder / name)
    (folder / "b" / "2" / "default" / "_METADATA").unlink()
    where = folder if levels == 1 else tmp_path / "all"
    if levels == 2:
        where.mkdir()
        folder.rename(where / "runs")
    if beside == "a checkpoint":
        shutil.copytree(run / "1", where / "mine")
    if beside == "a file":
        (where / "README").write_text("runs")

    ended = command("doctor", where, "--settled", "0")
    found = surgery.doctor(str(where), settled_seconds=0)

    names = ["a", "b"] if levels == 1 else ["runs"]
    rows = {row.path: row for row in found.places}
    assert ended.code == found.exit_code == 0
    for name in names:
        assert rows[name].state == "apart"
        assert rows[name].todo == f"`surgery doctor {where / name}` looks at them"
    assert any("which are not looked at here" in note for note in found.notes)
    assert f"`surgery doctor {where / names[0]}` looks at them" in ended.out
    deepest = where / "b" if levels == 1 else where / "runs" / "b"
    assert place(deepest, "2").state == "damaged"


def test_a_folder_without_any_checkpoint_is_none(tmp_path, command):  # noqa: F811
    (tmp_path / "logs" / "7").mkdir(parents=True)
    (tmp_path / "logs" / "7" / "events").write_text("x")
    assert command("doctor", tmp_path).code == 3
