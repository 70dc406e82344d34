"""Runs whose steps are files of Flax: what is written there is restored by Flax itself, which looks at names alone."""

import json
import shlex
import shutil
import subprocess

import numpy as np
import pytest
from flax import config
from flax.training import checkpoints

from surgery_cli import surgery as use_cases
from surgery_cli.store.filesystem.names import name_of_record

TREE = {"params": {"w": np.arange(8, dtype=np.float32), "b": np.ones(3, np.float32)}}


@pytest.fixture(params=["checkpoint_", "model_", "model", "ck.", ""], ids=repr)
def run(request, tmp_path):
    """A run of two steps, and the prefix of their names."""
    return saved(tmp_path, request.param), request.param


def saved(tmp_path, prefix):
    before = config.flax_use_orbax_checkpointing
    config.update("flax_use_orbax_checkpointing", False)
    for step in (3, 5):
        checkpoints.save_checkpoint(str(tmp_path / "run"), TREE, step=step, prefix=prefix, keep=5)
    config.update("flax_use_orbax_checkpointing", before)
    return tmp_path / "run"


def check(place, prefix, name, factor):
    assert checkpoints.latest_checkpoint(str(place), prefix) == str(place / name)
    found = checkpoints.restore_checkpoint(str(place), None, prefix=prefix)
    np.testing.assert_array_equal(found["params"]["w"], TREE["params"]["w"] * np.float32(factor))
    np.testing.assert_array_equal(found["params"]["b"], TREE["params"]["b"])


def rescale(surgery, source, new, *more):
    done = surgery("rescale", source, new, "params/w", "--by", "2", *more)
    assert done.code == 0, done.err


def knows_steps(prefix):
    """True if a run is told by the names of its steps: anybody may call a file `model5`."""
    return prefix in ("checkpoint_", "model_", "")


@pytest.mark.parametrize("said", ["the run", "a step of it", "the step itself"])
def test_flax_restores_the_edited_step_and_its_record_is_known(surgery, run, tmp_path, said):
    """It took the record for the last step, whose name goes on behind the number, and could not read it."""
    root, prefix = run
    if said != "the step itself" and not knows_steps(prefix):
        pytest.skip("its steps are named each by itself")
    new, last = tmp_path / "new", f"{prefix}5"
    if said == "the step itself":
        new.mkdir()
        source, target = root / last, new / last
    else:
        source, target = {"the run": root, "a step of it": f"{root}@5"}[said], new
    rescale(surgery, source, target)
    check(new, prefix, last, 2)
    assert json.loads((new / name_of_record(last)).read_text())["draft"]
    assert use_cases.verify(str(target)).agrees
    assert len(use_cases.log(str(target)).entries) == 1
    rescale(surgery, source, target, "--force")
    assert sorted(path.name for path in new.iterdir()) == sorted([last, name_of_record(last)])
    check(new, prefix, last, 2)
    rescale(surgery, target, tmp_path / "again" if new == target else new / f"{prefix}6")
    place, name = (tmp_path / "again", last) if new == target else (new, f"{prefix}6")
    check(place, prefix, name, 4)


def test_a_seal_and_a_new_step_hide_no_step_either(surgery, run):
    root, prefix = run
    assert surgery("seal", root / f"{prefix}5").code == 0
    check(root, prefix, f"{prefix}5", 1)
    assert use_cases.verify(str(root / f"{prefix}5")).agrees
    if knows_steps(prefix):
        rescale(surgery, root, root, "--as-step", "7")
    else:
        rescale(surgery, root / f"{prefix}5", root / f"{prefix}7")
    check(root, prefix, f"{prefix}7", 2)


def test_a_record_of_before_is_found_under_the_name_that_it_had(surgery, run, tmp_path):
    """Nothing replaces it: it would stay beside another file, and for Flax be the last step."""
    root, prefix = run
    last, new = f"{prefix}5", tmp_path / "new"
    new.mkdir()
    rescale(surgery, root / last, new / last)
    shutil.move(new / name_of_record(last), new / f"{last}.surgery.json")
    assert len(use_cases.log(str(new / last)).entries) == 1
    (new / last).unlink()
    done = surgery("rescale", root / last, new / last, "params/w", "--by", "3")
    assert done.code == 2, done.err
    assert [path.name for path in new.iterdir()] == [f"{last}.surgery.json"]
    command = done.err.rpartition("`mv ")[2].partition("`")[0]
    subprocess.run(["mv", *shlex.split(command)], check=True)
    rescale(surgery, root / last, new / last)
    assert sorted(path.name for path in new.iterdir()) == sorted([last, name_of_record(last)])
    check(new, prefix, last, 2)


@pytest.mark.parametrize("how", ["of one", "by its number", "the latest", "as doctor says"])
@pytest.mark.parametrize("where", ["disk", "bucket"])
def test_a_run_of_files_is_rescued_as_a_run(surgery, run, tmp_path, bucket, how, where):
    """Its files had to be named one by one, and what came of it was a file of whatever name."""
    root, prefix = run
    if not knows_steps(prefix):
        pytest.skip("its steps are named each by itself")
    source, more, step = str(root), [], f"{prefix}5"
    if how == "of one":
        (root / f"{prefix}3").unlink()
    elif how == "by its number":
        source, step = f"{root}@3", f"{prefix}3"
    elif how == "the latest":
        source = f"{root}@latest"
    else:
        content = (root / step).read_bytes()
        (root / step).write_bytes(content[:-2])
        said = surgery("doctor", root, "--settled", "0").out
        _, source, _, *more = shlex.split(said.rpartition("`surgery ")[2].partition("`")[0])
        assert "--fill-from" in more, said
    new = "gs://bkt/new" if where == "bucket" else str(tmp_path / "new")
    done = surgery("rescue", source, new, *more)
    assert done.code == 0, done.err
    if where == "bucket":
        (tmp_path / "new").mkdir()
        for name in bucket.names("new/"):
            (tmp_path / name).write_bytes(bucket.content(name))
    check(tmp_path / "new", prefix, step, 1)


def test_a_run_of_files_in_a_bucket_has_no_marks(surgery, run, tmp_path, bucket):
    """Its last step was called unfinished, and that a mark be put into it was the advice."""
    root, prefix = run
    if not knows_steps(prefix):
        pytest.skip("its steps are named each by itself")
    bucket.upload(root, "gs://bkt/runs/r")
    assert surgery("inspect", "gs://bkt/runs/r").code == 0
    rescale(surgery, "gs://bkt/runs/r", "gs://bkt/runs/r", "--as-step", "8")
    rescale(surgery, "gs://bkt/runs/r@latest", tmp_path / "new")
    check(tmp_path / "new", prefix, f"{prefix}8", 4)


@pytest.mark.parametrize("is_ours", [True, False])
def test_of_a_record_under_its_older_name_none_is_left_with_force(surgery, run, is_ours):
    root, prefix = run
    new = root / f"{prefix}7"
    rescale(surgery, root / f"{prefix}5", new)
    older = root / f"{new.name}.surgery.json"
    shutil.move(root / name_of_record(new.name), older)
    if not is_ours:
        older.write_text("theirs")
    rescale(surgery, root / f"{prefix}5", new, "--force")
    assert (root / name_of_record(new.name)).is_file()
    assert older.exists() != is_ours
    if is_ours:
        check(root, prefix, new.name, 2)


@pytest.mark.parametrize("prefix", ["checkpoint_", "", "model", "ck.", "1.", "v2_"])
@pytest.mark.parametrize("how", ["edited", "forced", "sealed", "rescued"])
def test_no_record_beside_a_step_is_the_newest_step_of_any_prefix(surgery, tmp_path, prefix, how):
    """Flax takes all that begins with its prefix for a step: with `''` all that stands there, hidden or not."""
    root = saved(tmp_path, prefix)
    old, new = root / f"{prefix}5", root / f"{prefix}7"
    if how == "sealed":
        new = old
        assert surgery("seal", old).code == 0
    elif how == "rescued":
        assert surgery("rescue", old, new).code == 0
    else:
        rescale(surgery, old, new)
        if how == "forced":
            rescale(surgery, old, new, "--force")
    check(root, prefix, new.name, 2 if how in ("edited", "forced") else 1)
    assert [path.name for path in root.iterdir() if path.name.endswith("surgery.json")] == [
        name_of_record(new.name)
    ]
    assert use_cases.verify(str(new)).agrees


NAMES = (
    "checkpoint_best",
    "checkpoint_1.5e",
    "checkpoint_½",
    "checkpoint_٣",
    "checkpoint_7.old",
    "model",
    "5a",
    "7",
    "checkpoint_best.msgpack",
    "checkpoint_7.msgpack",
    "best.msgpack",
)
SUFFIXED = ("best.npz", "best.safetensors")


@pytest.mark.parametrize("how", ["edited", "forced", "sealed", "rescued", "exported"])
@pytest.mark.parametrize("name", NAMES)
def test_whatever_a_file_is_called_flax_restores_it_and_not_its_record(
    surgery, tmp_path, name, how
):
    """Of `checkpoint_best` the record was the last step, and no JSON is msgpack. All prefixes are tried."""
    old = saved(tmp_path, "checkpoint_") / "checkpoint_5"
    root = tmp_path / "new"
    root.mkdir()
    (root / name).write_bytes(old.read_bytes())
    prefixes = [name[:length] for length in range(len(name) + 1)]
    before = {prefix: checkpoints.latest_checkpoint(str(root), prefix) for prefix in prefixes}
    assert set(before.values()) == {str(root / name)}
    factor = 2 if how in ("edited", "forced") else 1
    if how not in ("sealed", "forced"):
        (root / name).unlink()
    if how == "sealed":
        assert surgery("seal", root / name).code == 0
    elif how == "rescued":
        assert surgery("rescue", old, root / name).code == 0
    elif how == "exported":
        assert surgery("export", old, root / name, "--to", "msgpack").code == 0
    else:
        rescale(surgery, old, root / name, *(["--force"] if how == "forced" else []))
    names = {name, name_of_record(name)}
    assert {path.name for path in root.iterdir()} == names
    assert name_of_record(name) == f".{name}.surgery.json"
    for prefix in prefixes:
        assert checkpoints.latest_checkpoint(str(root), prefix) == before[prefix], prefix
        check(root, prefix, name, factor)
    assert use_cases.verify(str(root / name)).agrees


@pytest.mark.parametrize("name", SUFFIXED)
def test_a_record_beside_a_name_that_says_a_format_is_seen(surgery, tmp_path, name):
    """Scripts know it by that name, and no step of Flax ends so."""
    old = saved(tmp_path, "checkpoint_") / "checkpoint_5"
    form = name.rpartition(".")[2]
    done = surgery("export", old, tmp_path / "new" / name, "--to", form)
    assert done.code == 0, done.err
    assert (tmp_path / "new" / f"{name}.surgery.json").is_file()


@pytest.mark.parametrize("name", ["checkpoint_5", "checkpoint_best", "model6", "best.msgpack"])
@pytest.mark.parametrize("where", ["disk", "gs", "s3"])
def test_a_seal_leaves_no_record_under_its_older_name(surgery, request, tmp_path, name, where):
    """It went on under the name that Flax takes for a step, and that an edit refuses."""
    old = saved(tmp_path, "checkpoint_") / "checkpoint_3"
    root = tmp_path / "new"
    root.mkdir()
    rescale(surgery, old, root / name)
    older = root / f"{name}.surgery.json"
    shutil.move(root / name_of_record(name), older)
    if where != "disk":
        service = request.getfixturevalue("bucket" if where == "gs" else "s3")
        service.upload(root, f"{service.root}/new")
        place, before = f"{service.root}/new/{name}", older.read_bytes()
        refused = surgery("seal", place)
        assert refused.code == 2, refused.err
        assert "is a record under the name that it had in an earlier version" in refused.err
        assert service.content(f"new/{older.name}") == before
        command = shlex.split(refused.err.rpartition("give it its name: `")[2].partition("`")[0])
        begin = {"gs": ["gcloud", "storage", "mv", "-n"], "s3": ["aws", "s3", "mv"]}[where]
        assert command[: len(begin)] == begin
        read, written = (word.removeprefix(f"{service.root}/") for word in command[len(begin) :])
        service.put("bkt", written, service.content(read))
        service.remove(read)
        service.settle()
        assert surgery("seal", place).code == 0
        shutil.rmtree(root)
        root.mkdir()
        for file in service.names("new/"):
            (tmp_path / file).write_bytes(service.content(file))
        place = root / name
    else:
        place = root / name
        done = surgery("seal", place)
        assert done.code == 0, done.err
        assert f".{name}.surgery.json" in done.out
    assert {path.name for path in root.iterdir()} == {name, name_of_record(name)}
    check(root, "", name, 2)
    assert len(use_cases.log(str(place)).entries) == 1  # the edit, whose record went on
    found = use_cases.verify(str(place))
    assert found.agrees
    assert not found.unchecked


def test_of_two_records_a_seal_goes_on_with_the_one_of_today(surgery, run):
    root, prefix = run
    new = root / f"{prefix}7"
    rescale(surgery, root / f"{prefix}5", new)
    older = root / f"{new.name}.surgery.json"
    shutil.copy(root / name_of_record(new.name), older)
    assert surgery("seal", new).code == 0
    assert not older.exists()
    older.write_text("theirs")
    assert surgery("seal", new).code == 0
    assert older.read_text() == "theirs"
    older.unlink()
    check(root, prefix, new.name, 2)


@pytest.mark.parametrize("called", ["{name}.surgery.json", ".{name}.surgery.json"])
@pytest.mark.parametrize("where", ["disk", "bucket"])
def test_a_rescue_is_refused_where_a_record_of_another_file_stands(
    surgery, tmp_path, bucket, where, called
):
    """Beside the result Flax would take one of an earlier version for the last step; the other was found at the end."""
    root = saved(tmp_path, "checkpoint_")
    new, record = "checkpoint_7", called.format(name="checkpoint_7")
    rescale(surgery, root / "checkpoint_5", root / new)
    (root / new).unlink()
    shutil.move(root / name_of_record(new), root / record)
    before = {path.name: path.read_bytes() for path in root.iterdir()}
    place = str(root)
    if where == "bucket":
        place = bucket.upload(root, "gs://bkt/run")
    refused = surgery("rescue", f"{place}/checkpoint_5", f"{place}/{new}")
    assert refused.code == 2, refused.err
    assert f"'{place}/{record}'" in refused.err
    assert "while this run was under way" not in refused.err
    assert {path.name: path.read_bytes() for path in root.iterdir()} == before
    if where == "bucket":
        assert set(bucket.names("run/")) == {f"run/{name}" for name in before}
