"""A run that was begun with `--resume` goes on from where it was cut short, and nobody can tell from the result."""

import json
import os
import re
import shlex
import shutil

import flax.serialization
import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import CheckpointError, DestinationError, ValueRefusal, WriteError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store.filesystem.owners import make_owned, owner_of, take_over
from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.write.aftermath import aftermath
from surgery_cli.store.write.journal import Head
from surgery_cli.store.write.resumable_staging import ResumableStaging
from surgery_cli.surgery import staged_result
from surgery_cli.words.invocation import remember
from tests.source_trees import everything_of
from tests.store.cutting import Runs

RANDOM = np.random.default_rng(3)
TREE = {
    "params": {
        "a": RANDOM.normal(size=(64, 64)).astype(np.float32),
        "b": RANDOM.normal(size=(32, 64)).astype(np.float32),
        "c": RANDOM.normal(size=(40,)).astype(np.float32),
    },
    "other": np.arange(6, dtype=np.int32),
}
LAYOUTS = {
    "ocdbt": {},
    "zarr3": {"use_zarr3": True},
    "leaves": {"use_ocdbt": False},
    "leaves-zarr3": {"use_ocdbt": False, "use_zarr3": True},
}


@pytest.fixture(scope="module")
def run():
    with Runs() as runs:
        yield runs


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Checkpoints by layout, in chunks of 16 rows."""
    folder = tmp_path_factory.mktemp("sources")
    chunks = ocp.SaveArgs(chunk_byte_size=4096)
    for name, how in LAYOUTS.items():
        with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(**how)) as checkpointer:
            saved = {"params": dict.fromkeys(TREE["params"], chunks), "other": chunks}
            checkpointer.save(folder / name, args=ocp.args.PyTreeSave(TREE, save_args=saved))
    return folder


def command(source, new, *more):
    edit = ("rescale", source, new, "params", "--by", "2", "--optimizer", "keep")
    return (*edit, "--quiet", "--resume", *more)


def restored(path):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return checkpointer.restore(path)


def check(path, factor=2):
    tree = restored(path)
    for name, values in TREE["params"].items():
        np.testing.assert_array_equal(tree["params"][name], values * np.float32(factor))
    np.testing.assert_array_equal(tree["other"], TREE["other"])


def side_files(path):
    """Everything that readers see beside tensor bytes; of the record, all but its time, its digest and files.

    Data files have random names.
    """
    found = {}
    for file in sorted(p for p in path.rglob("*") if p.is_file()):
        name = str(file.relative_to(path))
        if "/d/" in f"/{name}" or name.endswith("manifest.ocdbt"):
            continue
        content = file.read_bytes()
        if name.endswith("surgery.json"):
            content = {**json.loads(content), "written": None, "content": None, "stands": None}
        found[name] = content
    return found


def left_in(folder):
    return sorted(p.name for p in folder.iterdir() if ".surgery-" in p.name)


@pytest.fixture(scope="module")
def whole(run, sources):
    """The results of runs that were not cut short, by layout."""
    for layout in LAYOUTS:
        ended = run(*command(sources / layout, sources / f"{layout}-whole"))
        assert (ended["code"], ended["said"]) == (0, "")
    return lambda layout: sources / f"{layout}-whole"


def cut_short(run, source, new, cut, *more):
    """A run that was killed where so many blocks stood, and what it left."""
    assert run(*command(source, new, *more), cut=[*cut, "SIGKILL"])["code"] == -9
    assert not new.exists()
    (left,) = left_in(new.parent)
    return new.parent / left


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("layout", "cut"),
    [
        ("ocdbt", ("entry", 3)),
        ("zarr3", ("entry", 7)),
        ("leaves", ("entry+", 4)),
        ("leaves-zarr3", ("entry", 6)),
    ],
)
def test_what_was_killed_goes_on_and_nobody_can_tell(run, sources, whole, tmp_path, layout, cut):
    source, new = sources / layout, tmp_path / "new"
    cut_short(run, source, new, cut)
    went_on = run(*command(source, new, "--json"))
    assert went_on["code"] == 0, went_on["said"]
    assert (json.loads(went_on["said"])["taken_up_bytes"] > 0) == (cut != ("entry", 3))
    check(new)
    assert side_files(new) == side_files(whole(layout))
    assert left_in(tmp_path) == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", ["ocdbt", "leaves"])
@pytest.mark.parametrize("part", range(2))
def test_whatever_moment_strikes_the_same_command_goes_on(
    run, sources, whole, tmp_path, layout, part, request
):
    source = sources / layout
    counted = run(*command(source, tmp_path / "new"), cut=["file", 0, "SIGKILL"])["counted"]
    moments = range(part + 1, counted + 1, 2)
    if not request.config.getoption("--every-combination"):
        moments = [moments[len(moments) * (2 + 3 * part) // 6]]
    for moment in moments:
        new = tmp_path / str(moment) / "new"
        new.parent.mkdir()
        later = moment
        while not new.exists():  # and once more, later on, until it comes to its end
            ended = run(*command(source, new), cut=["file", later, "SIGKILL"])
            assert ended["code"] in (0, -9), ended["said"]
            later += 40
        check(new)
        assert side_files(new) == side_files(whole(layout))


def test_a_new_database_goes_on(run, sources, tmp_path):
    source, new = sources / "ocdbt", tmp_path / "new"
    cut_short(run, source, new, ("entry", 4), "--compact", "always")
    assert run(*command(source, new, "--compact", "always"))["code"] == 0
    check(new)


@pytest.mark.parametrize(("blow", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_run_that_is_asked_to_end_says_what_goes_on_and_it_does(
    run, sources, tmp_path, blow, code
):
    source, new = sources / "ocdbt", tmp_path / "new"
    ended = run(*command(source, new), cut=["entry+", 5, blow])
    assert ended["code"] == code
    (left,) = left_in(tmp_path)
    said = re.search(
        r"'(.*)' keeps what is done, (.*) of 24.2 KiB: `surgery (.*)` goes on from there,"
        r" `surgery (.*)` removes it",
        ended["said"],
    )
    assert said[1] == str(tmp_path / left)
    assert run(*shlex.split(said[4]), "--dry-run")["said"].startswith("would remove")
    assert run(*shlex.split(said[3]))["code"] == 0
    check(new)
    assert run(*shlex.split(said[3]))["code"] == 0


def test_what_was_kept_is_named_by_clean_and_removed_on_request_alone(run, sources, tmp_path):
    source, new = sources / "ocdbt", tmp_path / "new"
    left = cut_short(run, source, new, ("entry+", 5))
    typed = f"`surgery {shlex.join(map(str, command(source, new)))}` goes on from there"
    seen = run("clean", new, "--dry-run")["said"]
    assert "it keeps what is done, " in seen
    assert typed in " ".join(seen.split())
    without = [word for word in command(source, new, "--force") if word != "--resume"]
    said = run(*without)
    assert said["code"] == 0
    assert "keeps what is done" in said["said"]
    assert left.exists()
    assert run("clean", new)["code"] == 0
    assert left_in(tmp_path) == []


def test_a_disk_that_takes_no_more_keeps_what_is_done(run, sources, tmp_path):
    source, new = sources / "leaves", tmp_path / "new"
    ended = run(*command(source, new), cut=["size", 1800, ""])
    assert ended["code"] == 4
    assert "goes on from there" in ended["said"]
    assert len(left_in(tmp_path)) == 1
    assert run(*command(source, new))["code"] == 0
    check(new)


def test_a_damaged_block_is_made_anew(run, sources, whole, tmp_path):
    source, new = sources / "ocdbt", tmp_path / "new"
    left = cut_short(run, source, new, ("entry+", 6))
    files = sorted((left / "new" / "d").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file, change in zip(files[-4:-1], (b"", b"\0", None), strict=True):
        content = file.read_bytes()
        if change is None:
            file.unlink()
        else:
            file.write_bytes(content[:100] + change * 50 + content[150:] if change else change)
    went_on = run(*command(source, new, "--json"))
    assert went_on["code"] == 0, went_on["said"]
    check(new)
    assert side_files(new) == side_files(whole("ocdbt"))


@pytest.mark.parametrize("end", [-1, -200])
def test_a_journal_that_was_cut_in_a_line_counts_up_to_there(run, sources, tmp_path, end):
    source, new = sources / "ocdbt", tmp_path / "new"
    left = cut_short(run, source, new, ("entry+", 6))
    journal = left / ".surgery-journal"
    journal.write_bytes(journal.read_bytes()[:end])
    cut = ["entry+", 1, "SIGKILL"]
    assert run(*command(source, new), cut=cut)["code"] == -9
    went_on = run(*command(source, new, "--json"))
    assert went_on["code"] == 0
    assert json.loads(went_on["said"])["taken_up_bytes"] >= 8192
    check(new)


def test_what_is_of_another_draft_or_version_or_setting_is_refused_by_name(run, sources, tmp_path):
    source, new = tmp_path / "source", tmp_path / "new"
    shutil.copytree(sources / "leaves", source)
    left = cut_short(run, source, new, ("entry+", 5))
    before = everything_of(left)
    other = [word if word != "2" else "3" for word in command(source, new)]
    ended = run(*other)
    assert (ended["code"], "is of another draft" in ended["said"]) == (3, True)
    assert "the plan's edit 1 was `{" in ended["said"]
    assert '"by":2.0}`, and is `{' in ended["said"]
    assert f"`surgery {shlex.join(map(str, command(source, new)))}`" in ended["said"]
    ended = run(*command(source, new, "--link", "never"))
    assert (ended["code"], "made by another setting" in ended["said"]) == (2, True)
    assert "--link: auto, and never now" in ended["said"]
    ended = run(*command(source, new, "--compact", "always"))
    assert (ended["code"], "--compact: auto, and always now" in ended["said"]) == (2, True)
    assert "[" not in ended["said"].partition("setting")[2].partition("now")[0]
    chunk = next((source / "params.a").glob("0*"))
    shutil.copy(chunk, tmp_path / "chunk")
    chunk.unlink()
    shutil.copy(tmp_path / "chunk", chunk)
    ended = run(*command(source, new))
    assert (ended["code"], f"'{source}' (the source) has changed" in ended["said"]) == (3, True)
    other_memory = run(*command(source, new, "--memory", "64MiB"))  # which alone is no other draft
    assert f"'{source}' (the source) has changed" in other_memory["said"]
    assert "goes on from there" not in other_memory["said"]
    asked = [
        run("clean", new, "--dry-run"),
        run("doctor", tmp_path, "--json"),
    ]
    for said in asked:
        text = " ".join(said["said"].split())
        assert text.count("goes on from there") == 1, text
        assert text.count("goes on from there, if its plan and what it reads are as they were") == 1
    assert everything_of(left) == before


def test_what_was_written_anew_under_its_name_and_size_is_another_source(run, sources, tmp_path):
    """As a damaged source is repaired; nothing but its time tells, and blocks of both would stand in one result."""
    source, new = tmp_path / "source", tmp_path / "new"
    shutil.copytree(sources / "ocdbt", source)
    left = cut_short(run, source, new, ("entry+", 5))
    before = everything_of(left)
    (data, *_) = sorted(path for path in source.rglob("d/*") if path.is_file())
    content = data.read_bytes()
    data.unlink()
    data.write_bytes(content)
    ended = run(*command(source, new))
    assert (ended["code"], f"'{source}' (the source) has changed" in ended["said"]) == (3, True)
    assert everything_of(left) == before
    assert run("clean", new)["code"] == 0
    assert run(*command(source, new))["code"] == 0
    check(new)


def test_versions_are_told_apart(run, sources, tmp_path):
    source, new = sources / "ocdbt", tmp_path / "new"
    left = cut_short(run, source, new, ("entry+", 5))
    journal = left / ".surgery-journal"
    journal.write_bytes(
        re.sub(rb'"tensorstore":"[0-9.]*"', b'"tensorstore":"0"', journal.read_bytes())
    )
    ended = run(*command(source, new))
    assert (ended["code"], "made by another version" in ended["said"]) == (2, True)
    assert "tensorstore: 0, and " in ended["said"]


def test_only_one_run_goes_on(run, sources, tmp_path):
    source, new = sources / "ocdbt", tmp_path / "new"
    left = cut_short(run, source, new, ("entry+", 5))
    owner = left / ".surgery-owner.json"
    dead = owner.read_bytes()
    owner.write_bytes(msgspec.json.encode(Owner.here()))
    ended = run(*command(source, new, "--stale"))
    assert (ended["code"], f"another run (process {os.getpid()})" in ended["said"]) == (2, True)
    assert run("clean", new, "--stale")["code"] == 1
    assert left.exists()
    elsewhere = msgspec.structs.replace(Owner.here(), machine="01234567", host="tpu-vm-3")
    owner.write_bytes(msgspec.json.encode(elsewhere))
    ended = run(*command(source, new))
    assert (ended["code"], "a run of 'tpu-vm-3' that cannot be looked at" in ended["said"]) == (
        2,
        True,
    )
    assert "add `--stale` to go on from there" in ended["said"]
    assert dead != owner.read_bytes()
    assert run(*command(source, new, "--stale"))["code"] == 0
    check(new)


def test_who_comes_second_finds_nothing_to_take(tmp_path):
    place = tmp_path / ".new.surgery-tmp-0123abcd"
    make_owned(place)
    taken = take_over(place)
    assert owner_of(taken) == Owner.here()
    with pytest.raises(FileNotFoundError):
        take_over(place)
    born = taken.rename(taken.with_name(f"{taken.name}-1-2-01234567"))
    assert owner_of(born).machine == "01234567"  # whatever the file in it still says


def test_what_functions_make_is_made_anew_in_its_order(run, sources, tmp_path):
    (tmp_path / "edit.py").write_text(
        "import numpy as np\nDRAWS = np.random.default_rng(5)\n"
        "def noisy(array, path):\n    return array + DRAWS.normal(size=array.shape).astype(array.dtype)\n"
    )
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "edits:\n- {op: rescale, at: params/b, by: 2}\n"
        f"- {{op: map, at: [params/a, params/c], with: '{tmp_path}/edit.py:noisy'}}\n"
    )
    source, new = sources / "ocdbt", tmp_path / "new"
    args = ["apply", source, new, plan, "--quiet", "--resume", "--json"]
    assert run(*args, cut=["entry+", 4, "SIGKILL"])["code"] == -9
    went_on = run(*args)
    assert went_on["code"] == 0, went_on["said"]
    other = run("apply", source, tmp_path / "other", plan, "--quiet")
    assert other["code"] == 0
    for one, same in zip(
        *(restored(p)["params"].values() for p in (new, tmp_path / "other")), strict=True
    ):
        np.testing.assert_array_equal(one, same)


def test_rules_see_what_an_earlier_run_wrote(run, sources, tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "edits:\n- {op: normalize, at: params/a, to: 1000}\n- {op: rescale, at: params/b, by: 2}\n"
        "- {op: assert, at: params/a, norm: ..10}\n"
    )
    source, new = sources / "ocdbt", tmp_path / "new"
    args = ["apply", source, new, plan, "--quiet", "--resume"]
    left = run(*args, cut=["entry+", 6, "SIGKILL"])
    assert left["code"] == -9
    ended = run(*args)
    assert (ended["code"], "breaks `norm ..10`" in ended["said"]) == (1, True), ended["said"]
    assert len(left_in(tmp_path)) == 1, "another rule lets the same edits pass"
    assert run("clean", new)["code"] == 0
    assert left_in(tmp_path) == []


def test_sources_on_record_are_held_against_it_whoever_read_them(run, sources, tmp_path):
    source, new = tmp_path / "source", tmp_path / "new"
    shutil.copytree(sources / "leaves", source)
    assert run("seal", source)["code"] == 0
    cut_short(run, source, new, ("entry+", 6))
    whole_run = json.loads(run(*command(source, tmp_path / "whole", "--json"))["said"])
    went_on = json.loads(run(*command(source, new, "--json"))["said"])
    assert went_on["sources_checked"] == whole_run["sources_checked"] == 3
    assert went_on["digests"] == whole_run["digests"]


def test_msgpack_has_nothing_to_go_on_from(run, tmp_path):
    (tmp_path / "w").write_bytes(
        flax.serialization.msgpack_serialize({"w": np.ones(4, np.float32)})
    )
    ended = run("rescale", tmp_path / "w", tmp_path / "new", "w", "--by", "2", "--resume")
    assert ended["code"] == 2
    assert "`--resume` can keep nothing" in ended["said"]


@pytest.mark.parametrize("moment", ["entry", "entry+"])
def test_with_force_the_old_one_stands_until_the_new_one_does(run, sources, tmp_path, moment):
    source, new = sources / "ocdbt", tmp_path / "new"
    assert run(*command(source, new))["code"] == 0
    edit = [word if word != "2" else "4" for word in command(source, new, "--force")]
    last = run(*command(source, tmp_path / "other"), cut=["entry", 0, "SIGKILL"])["counted"]
    assert run(*edit, cut=[moment, last, "SIGKILL"])["code"] == -9
    check(new)
    assert run(*edit)["code"] == 0
    check(new, factor=4)
    assert left_in(tmp_path) == []


PLAN = plan_of(
    [operation_from_options("rescale", {"at": "params", "by": "2", "optimizer": "keep"})]
)
RESUME = surgery.Options(resume=True)


def test_of_two_runs_that_begin_at_once_one_at_most_goes_on(tmp_path):
    head = Head("sha256:0", {}, {})
    with ResumableStaging(tmp_path / "new", head, [], None):
        (living,) = left_in(tmp_path)
        with (
            pytest.raises(DestinationError, match="another run"),
            ResumableStaging(tmp_path / "new", head, [], None),
        ):
            pass
        assert left_in(tmp_path) == [living]
    assert left_in(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (WriteError("it does not read back"), False),
        (ValueRefusal("it is not finite"), False),
        (KeyboardInterrupt(), True),
        (CheckpointError("the service fails"), True),
    ],
    ids=str,
)
def test_what_would_come_to_the_same_end_is_not_kept(sources, tmp_path, monkeypatch, error, stays):
    def failing(*_, **__):
        raise error

    remember([])  # what other tests have typed
    source, new = str(sources / "ocdbt"), str(tmp_path / "new")
    monkeypatch.setattr(staged_result, "verify_result", failing)
    with pytest.raises(type(error)):
        surgery.apply(source, new, PLAN, options=RESUME)
    assert len(left_in(tmp_path)) == stays
    assert ("the same call goes on from there" in aftermath()) == stays
    monkeypatch.undo()
    if stays:  # this process has it, and lives
        with pytest.raises(DestinationError, match="another run"):
            surgery.apply(source, new, PLAN, options=RESUME)


def test_a_destination_that_came_meanwhile_costs_nothing(run, sources, tmp_path):
    source, new = sources / "ocdbt", tmp_path / "new"
    cut_short(run, source, new, ("entry+", 9))
    (tmp_path / "came").mkdir()
    (tmp_path / "came").rename(new)
    assert run(*command(source, new))["code"] == 2
    assert len(left_in(tmp_path)) == 1
    new.rmdir()
    assert run(*command(source, new))["code"] == 0
    check(new)
