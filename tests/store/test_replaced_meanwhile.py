"""What comes to a destination on a disk after the last look, while ``--force`` puts the new one there, is not lost."""

import os
import subprocess
import sys

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.errors import DestinationError, WriteError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.store.filesystem import durability
from surgery_cli.store.write import set_aside, staging

PLAN = plan_of([operation_from_options("rescale", {"at": "params/w", "by": 2.0})])
REFUSED = "was written to by something else while this run was under way"


def saved(folder, by=1.0):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder, {"params": {"w": np.full((8, 8), by, np.float32)}})
    return folder


def names(folder):
    return [path.name for path in folder.iterdir()]


def first_value(folder):
    with ocp.PyTreeCheckpointer() as checkpointer:
        return float(checkpointer.restore(folder)["params"]["w"][0, 0])


def files_of(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def once(monkeypatch, module, name, *, before=None, after=None):
    """Let something happen at the first call of a function."""
    real, waiting = getattr(module, name), [1]

    def hooked(*args):
        is_first = bool(waiting) and not waiting.clear()
        if is_first and before:
            before()
        found = real(*args)
        if is_first and after:
            after()
        return found

    monkeypatch.setattr(module, name, hooked)


def without_exchange(monkeypatch):
    monkeypatch.setattr(durability, "_renameat2", lambda *_: False)


COMES = {
    "a file": lambda at: os.close(os.open("theirs", os.O_CREAT | os.O_WRONLY, dir_fd=at)),
    "a folder without files": lambda at: os.mkdir("theirs", dir_fd=at),
    "a link": lambda at: os.symlink("nowhere", "theirs", dir_fd=at),
    "another content": lambda at: os.close(
        os.open("manifest.ocdbt", os.O_RDWR | os.O_TRUNC, dir_fd=at)
    ),
}


@pytest.fixture(params=["with exchange", "without exchange"])
def exchanging(request, monkeypatch):
    if request.param == "without exchange":
        without_exchange(monkeypatch)
    return request.param == "with exchange"


@pytest.fixture(params=[(), ("resume",)], ids=["plain", "resume"])
def options(request):
    return Options(force=True, **dict.fromkeys(request.param, True))


@pytest.mark.parametrize("what", COMES)
class TestIntoTheFolder:
    """Written through a folder that was open before, as a training does that is at it."""

    @pytest.mark.parametrize("moment", ["before it is taken", "as it is taken", "once it is"])
    def test_before_it_is_looked_at_it_refuses(
        self, monkeypatch, tmp_path, moment, what, exchanging, options
    ):
        source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
        at = os.open(target, os.O_RDONLY)
        taken = "exchange" if exchanging else "rename_if_free"
        hooked = "rename_exclusively" if moment == "before it is taken" else taken
        when = "after" if moment == "once it is" else "before"
        once(monkeypatch, staging, hooked, **{when: lambda: COMES[what](at)})
        before = files_of(target)
        with pytest.raises(DestinationError, match=REFUSED) as refused:
            surgery.apply(str(source), str(target), PLAN, options=options)
        monkeypatch.undo()
        os.close(at)
        assert os.path.lexists(target / "theirs") == (what != "another content")
        now = files_of(target)
        assert {name: now[name] for name in before if now[name]} == {
            name: content
            for name, content in before.items()
            if (what, name) != ("another content", "manifest.ocdbt")
        }
        left = set(names(tmp_path)) - {"ck", "new"}
        assert bool(left) == options.resume
        assert ("goes on from there" in str(refused.value)) == options.resume

    def test_after_that_it_is_kept_and_named(
        self, monkeypatch, tmp_path, what, exchanging, options
    ):
        source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
        at = os.open(target, os.O_RDONLY)
        once(
            monkeypatch,
            set_aside if exchanging else staging,
            "remove_known",
            before=lambda: COMES[what](at),
        )
        report = surgery.apply(str(source), str(target), PLAN, options=options)
        os.close(at)
        old = tmp_path / "new.surgery-old"
        came = "manifest.ocdbt" if what == "another content" else "theirs"
        assert names(old) == [came]
        assert [note for note in report.consequences if f"'{old}' keeps" in str(note)]
        assert first_value(target) == 2.0
        assert set(names(tmp_path)) == {"ck", "new", old.name}


def test_where_it_cannot_be_exchanged_back_the_old_one_is_kept_whole(monkeypatch, tmp_path):
    source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
    once(
        monkeypatch,
        staging,
        "exchange",
        before=(target / "theirs").touch,
        after=lambda: monkeypatch.setattr(staging, "exchange", lambda *_: False),
    )
    report = surgery.apply(str(source), str(target), PLAN, options=Options(force=True))
    old = tmp_path / "new.surgery-old"
    assert (old / "theirs").exists()
    assert (first_value(old), first_value(target)) == (3.0, 2.0)
    assert [note for note in report.consequences if f"'{old}' keeps" in str(note)]


def test_what_comes_to_the_new_one_before_that_goes_back_is_kept(monkeypatch, tmp_path, options):
    source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
    once(
        monkeypatch,
        staging,
        "exchange",
        before=(target / "first").touch,
        after=(target / "second").touch,
    )
    with pytest.raises(DestinationError, match=REFUSED) as refused:
        surgery.apply(str(source), str(target), PLAN, options=options)
    old = tmp_path / "new.surgery-old"
    assert (target / "first").exists()
    assert names(old) == ["second"]
    assert f"'{old}' keeps" in str(refused.value)
    assert first_value(target) == 3.0
    assert set(names(tmp_path)) == {"ck", "new", old.name}


@pytest.mark.parametrize("what", ["a folder", "a file"])
def test_what_takes_the_place_of_the_old_one_that_was_moved_aside_stays(
    monkeypatch, tmp_path, what
):
    source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
    without_exchange(monkeypatch)

    def come():
        if what == "a folder":
            (target / "200").mkdir(parents=True)
        else:
            target.write_text("theirs")

    once(monkeypatch, staging, "rename_if_free", after=come)
    with pytest.raises(DestinationError, match=REFUSED) as refused:
        surgery.apply(str(source), str(target), PLAN, options=Options(force=True))
    old = tmp_path / "new.surgery-old"
    assert (target / "200").is_dir() if what == "a folder" else target.read_text() == "theirs"
    assert first_value(old) == 3.0
    assert str(old) in str(refused.value)


def single_file(tmp_path):
    """A destination that is one file, with its record beside it."""
    source, target = saved(tmp_path / "ck"), tmp_path / "new.msgpack"
    plan = plan_of([], output=Export(format="msgpack"))
    surgery.apply(str(source), str(target), plan)
    return source, target, plan, tmp_path / ".new.msgpack.surgery.json"


class TestSingleFiles:
    @pytest.mark.parametrize("moment", ["before", "after"])
    def test_another_file_of_that_name_stays(self, monkeypatch, tmp_path, moment, exchanging):
        source, target, plan, record = single_file(tmp_path)
        was = record.read_bytes()

        def come():
            (tmp_path / "theirs").write_text("theirs")
            (tmp_path / "theirs").replace(target)

        if moment == "before":
            once(monkeypatch, staging, "rename_exclusively", before=come)
        else:
            once(monkeypatch, staging, "exchange" if exchanging else "rename_if_free", before=come)
        with pytest.raises(DestinationError, match=REFUSED):
            surgery.apply(str(source), str(target), plan, options=Options(force=True))
        assert (target.read_text(), record.read_bytes()) == ("theirs", was)
        assert set(names(tmp_path)) == {"ck", target.name, record.name}

    def test_a_record_that_is_written_before_the_old_one_goes_stays(self, monkeypatch, tmp_path):
        source, target, plan, record = single_file(tmp_path)
        was = target.read_bytes()
        once(monkeypatch, staging, "rename", before=lambda: record.write_text("theirs"))
        with pytest.raises(DestinationError, match=REFUSED):
            surgery.apply(str(source), str(target), plan, options=Options(force=True))
        assert (target.read_bytes(), record.read_text()) == (was, "theirs")

    def test_one_that_is_written_while_the_result_is_made_refuses_it(self, monkeypatch, tmp_path):
        source, target, plan, record = single_file(tmp_path)
        once(monkeypatch, staging, "sync_tree", before=lambda: record.write_text("theirs"))
        with pytest.raises(DestinationError, match=REFUSED):
            surgery.apply(str(source), str(target), plan, options=Options(force=True))
        assert record.read_text() == "theirs"

    def test_one_that_comes_before_the_new_one_is_kept(self, monkeypatch, tmp_path, exchanging):
        source, target, plan, record = single_file(tmp_path)
        once(monkeypatch, staging, "rename_exclusively", before=lambda: record.write_text("theirs"))
        report = surgery.apply(str(source), str(target), plan, options=Options(force=True))
        kept = record.with_name(f"{record.name}.surgery-old")
        assert kept.read_text() == "theirs"
        assert [note for note in report.consequences if f"'{kept}' keeps" in str(note)]
        assert surgery.verify(str(target)).agrees


KILLED = """
import os, signal, sys
from surgery_cli import surgery
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.run import Options
from surgery_cli.store.write import set_aside, staging

source, target, moment, resume = sys.argv[1:]
real = staging.exchange
def come(name):
    with open(name, "w") as file:
        file.write("theirs")
def killed(*args):
    come(f"{target}/theirs")
    real(*args)
    os.kill(os.getpid(), signal.SIGKILL)
def killed_later(place, known):
    come(f"{place}/theirs")
    os.unlink(f"{place}/manifest.ocdbt")
    os.kill(os.getpid(), signal.SIGKILL)
def cut_short(file, content):
    with open(file, "xb") as stream:
        stream.write(content[:-1])
    os.kill(os.getpid(), signal.SIGKILL)
if moment == "before":
    set_aside.put_durably = cut_short
elif moment == "first":
    def first(*args):
        staging.exchange = real
        come(f"{target}/theirs")
        return real(*args)
    staging.exchange = first
elif moment == "once exchanged":
    staging.exchange = killed
else:
    set_aside.remove_known = killed_later
plan = plan_of([operation_from_options("rescale", {"at": "params/w", "by": 2.0})])
surgery.apply(source, target, plan, options=Options(force=True, resume=resume == "resume"))
"""


def killed(source, target, *more):
    command = [sys.executable, "-c", KILLED, str(source), str(target), *more]
    return subprocess.run(command, check=False, capture_output=True).returncode


def test_a_refused_run_is_gone_on_from(tmp_path):
    source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
    assert killed(source, target, "first", "resume") == 1
    assert len(names(tmp_path)) == 3
    options = Options(force=True, resume=True)
    report = surgery.apply(str(source), str(target), PLAN, options=options)
    assert report.taken_up_bytes
    assert first_value(target) == 2.0
    assert set(names(tmp_path)) == {"ck", "new"}


def test_what_was_killed_before_anything_was_exchanged_leaves_nothing_to_keep(tmp_path):
    source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
    assert killed(source, target, "before", "plain") == -9
    assert surgery.clean(str(target)).removed
    assert set(names(tmp_path)) == {"ck", "new"}
    assert first_value(target) == 3.0


class TestKilled:
    """Whoever removes what a killed run has left removes what that knew of the old one, and keeps the rest."""

    @pytest.fixture(
        params=[
            ("once exchanged", "plain"),
            ("once exchanged", "resume"),
            ("while the old one is removed", "plain"),
        ],
        ids="-".join,
    )
    def left(self, request, tmp_path):
        source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
        assert killed(source, target, *request.param) == -9
        return source, target

    def test_by_clean(self, left, tmp_path):
        _, target = left
        cleaned = surgery.clean(str(target))
        old = tmp_path / "new.surgery-old"
        assert names(old) == ["theirs"]
        assert [note for note in cleaned.notes if f"'{old}' keeps" in str(note)]
        assert first_value(target) == 2.0
        assert set(names(tmp_path)) == {"ck", "new", old.name}

    def test_by_the_next_run(self, left, tmp_path):
        source, target = left
        report = surgery.apply(str(source), str(target), PLAN, options=Options(force=True))
        old = tmp_path / "new.surgery-old"
        assert names(old) == ["theirs"]
        assert [note for note in report.consequences if f"'{old}' keeps" in str(note)]
        assert set(names(tmp_path)) == {"ck", "new", old.name}

    def test_where_the_name_for_it_is_taken_it_stays_where_it_is(self, left, tmp_path):
        _, target = left
        (tmp_path / "new.surgery-old").write_text("mine")
        with pytest.raises(WriteError, match=r"new.surgery-old") as refused:
            surgery.clean(str(target))
        assert "give it another name" in refused.value.problems[0].fix
        assert (tmp_path / "new.surgery-old").read_text() == "mine"
        assert [path.read_text() for path in tmp_path.rglob("theirs")] == ["theirs"]


@pytest.mark.parametrize("force", [True, False])
def test_a_record_beside_a_folder_is_nobody_s_that_the_run_knows(tmp_path, force):
    """It went, be it with what was replaced or for a new folder of that name."""
    for name in ("ck", "new") if force else ("ck",):
        ocp.PyTreeCheckpointer().save(tmp_path / name, {"params": {"w": np.ones(3, np.float32)}})
    beside = tmp_path / ".new.surgery.json"
    beside.write_bytes(b"theirs")
    surgery.apply(str(tmp_path / "ck"), str(tmp_path / "new"), PLAN, options=Options(force=force))
    assert beside.read_bytes() == b"theirs"
