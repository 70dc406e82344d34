"""What ``--force`` replaces is what stood there when the run began: what comes meanwhile is somebody's save."""

import importlib
import os

import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli import surgery
from surgery_cli.engine.execution import Execution
from surgery_cli.errors import DestinationError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.surgery import source_and_destination
from tests.buckets.checkpoints import uploaded

apply_module = importlib.import_module(
    "surgery_cli.surgery.apply"
)  # the package calls its function so

PLAN = plan_of([operation_from_options("rescale", {"at": "params/w", "by": 2.0})])


def saved(folder, by=1.0):
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder, {"params": {"w": np.full((8, 8), by, np.float32)}})
    return folder


def meanwhile(monkeypatch, what):
    """Let ``what`` happen while values are computed."""
    run = Execution.run

    def as_well(self, writers):
        what()
        return run(self, writers)

    monkeypatch.setattr(Execution, "run", as_well)


@pytest.mark.parametrize("way", [(), ("resume",)], ids=["plain", "resume"])
@pytest.mark.parametrize("what", ["a new file", "another content", "less"])
def test_on_a_disk(monkeypatch, tmp_path, what, way):
    source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
    file = target / "_CHECKPOINT_METADATA"

    def write():
        if what == "a new file":
            saved(target / "200")
        elif what == "less":
            file.unlink()
        else:
            file.write_bytes(file.read_bytes() + b" ")

    meanwhile(monkeypatch, write)
    options = Options(force=True, **dict.fromkeys(way, True))
    with pytest.raises(DestinationError, match="was written to by something else while this run"):
        surgery.apply(str(source), str(target), PLAN, options=options)
    assert (target / "200").exists() == (what == "a new file")
    assert file.exists() == (what != "less")
    left = {path.name for path in tmp_path.iterdir()} - {"ck", "new"}
    assert bool(left) == bool(way)  # it goes on from there


@pytest.mark.parametrize("way", [(), ("resume",)], ids=["plain", "resume"])
@pytest.mark.parametrize("what", ["a new object", "another content", "less"])
def test_in_a_bucket(monkeypatch, service, tmp_path, what, way):
    source = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    target = uploaded(service, saved(tmp_path / "old", by=3.0), f"{service.root}/new")
    name = "new/_CHECKPOINT_METADATA"

    def write():
        if what == "less":
            service.remove(name)
        else:
            place = "new/200/_METADATA" if what == "a new object" else name
            service.put("bkt", place, b"another")

    meanwhile(monkeypatch, write)
    before = {n: service.content(n) for n in service.names("new/")}
    options = Options(force=True, **dict.fromkeys(way, True))
    with pytest.raises(DestinationError, match="was written to by something else while this run"):
        surgery.apply(source, target, PLAN, options=options)
    after = {n: service.content(n) for n in service.names("new/")}
    changed = {n for n in before.keys() | after.keys() if before.get(n) != after.get(n)}
    assert changed == {"new/200/_METADATA" if what == "a new object" else name}


@pytest.mark.parametrize("way", [(), ("resume",)], ids=["plain", "resume"])
@pytest.mark.parametrize("kind", ["relative", "through a link", "a link itself", "a file"])
def test_what_nobody_has_changed_is_replaced(monkeypatch, tmp_path, kind, way):
    """However it is named, and wherever the process is by then."""
    source, target = saved(tmp_path / "ck"), tmp_path / "there" / "new"
    saved(target, by=3.0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "itself").symlink_to("there/new")
    plan, named = PLAN, {"relative": "there/new", "a link itself": "itself"}.get(kind, "link/new")
    if kind == "a file":
        plan, named = plan_of([], output=Export(format="msgpack")), "link/new.msgpack"
        surgery.apply(str(source), named, plan)
    if kind != "a link itself":
        meanwhile(monkeypatch, lambda: monkeypatch.chdir("/"))
    options = Options(force=True, **dict.fromkeys(way, kind != "a file"))
    surgery.apply(str(source), named, plan, options=options)


@pytest.mark.parametrize("way", [(), ("resume",)], ids=["plain", "resume"])
def test_what_is_gone_is_in_nobodys_way(monkeypatch, tmp_path, way):
    source, target = saved(tmp_path / "ck"), saved(tmp_path / "new", by=3.0)
    meanwhile(monkeypatch, lambda: target.rename(tmp_path / "moved"))
    surgery.apply(
        str(source), str(target), PLAN, options=Options(force=True, **dict.fromkeys(way, True))
    )
    assert target.exists()


MOMENTS = {
    "refuse_another_run": apply_module,
    "prepare": apply_module,
    "refuse_to_lose_others": source_and_destination,
    "check_target": apply_module,
    "check_new_step": apply_module,
    "costs": apply_module,
    "check_space": apply_module,
    "remove_dead": apply_module,
    "preview_notes": apply_module,
    "check_sealed_files": apply_module,
    "begin_to_read": apply_module,
}


def at(monkeypatch, moment, what):
    """Let ``what`` happen as soon as the function of that name is done."""
    module = MOMENTS[moment]
    done = getattr(module, moment)

    def and_then(*args, **more):
        found = done(*args, **more)
        what()
        return found

    monkeypatch.setattr(module, moment, and_then)


def run_of(folder, *steps):
    with ocp.CheckpointManager(folder) as manager:
        for step in steps:
            tree = {"params": {"w": np.full((8, 8), step, np.float32)}}
            manager.save(step, args=ocp.args.StandardSave(tree))
    return folder


LATER = [name for name in MOMENTS if name != "prepare"]


@pytest.mark.parametrize("moment", LATER)
def test_from_the_look_by_which_it_is_judged_nothing_comes_unnoticed(monkeypatch, tmp_path, moment):
    source, target = run_of(tmp_path / "ck", 1), run_of(tmp_path / "new", 1)
    at(monkeypatch, moment, lambda: run_of(target, 3))
    with pytest.raises(DestinationError, match="was written to by something else while this run"):
        surgery.apply(str(source), str(target), PLAN, options=Options(force=True))
    assert (target / "3").exists()


@pytest.mark.parametrize("moment", LATER)
def test_nor_does_it_in_a_bucket(monkeypatch, service, tmp_path, moment):
    source, old = run_of(tmp_path / "ck", 1), run_of(tmp_path / "new", 1)
    target = uploaded(service, old, f"{service.root}/new")
    saved_then = "new/3/_CHECKPOINT_METADATA"
    at(monkeypatch, moment, lambda: service.put("bkt", saved_then, b"{}"))
    with pytest.raises(DestinationError, match=r"was written to by something else|is not one"):
        surgery.apply(str(source), target, PLAN, options=Options(force=True))
    assert service.content(saved_then) == b"{}"


@pytest.mark.parametrize("moment", ["prepare", "check_new_step"])
def test_a_run_to_which_the_result_does_not_belong_is_held_to_what_it_then_is(
    monkeypatch, tmp_path, moment
):
    """Of one step it may be an earlier result; a second one that comes meanwhile is a training's."""
    source, target = run_of(tmp_path / "ck", 1), run_of(tmp_path / "new", 1)
    at(monkeypatch, moment, lambda: run_of(target, 3))
    with pytest.raises(DestinationError, match=r"does not belong|was written to"):
        surgery.apply(str(source), str(target), PLAN, options=Options(force=True, as_step=7))
    assert (target / "3").exists()


def moved_away(folder):
    """Another folder of that name, with the very files."""
    aside = folder.rename(folder.with_name("aside"))
    folder.mkdir()
    for path in aside.iterdir():
        path.rename(folder / path.name)
    aside.rmdir()


CAME = {
    "folders of a save that has just begun": lambda new: (
        new / "3.orbax-checkpoint-tmp" / "default"
    ).mkdir(parents=True),
    "an empty folder deep inside": lambda new: (new / "d" / "x").mkdir(),
    "a link to a folder": lambda new: (new / "4").symlink_to(new.parent / "ck"),
    "a link to a file": lambda new: (new / "latest").symlink_to(new / "_METADATA"),
    "a link to nothing": lambda new: (new / "latest").symlink_to("3"),
    "a pipe": lambda new: os.mkfifo(new / "pipe"),
    "another folder of that name": lambda new: moved_away(new / "d"),
    "an empty folder less": lambda new: (new / "empty").rmdir(),
    "a link that leads elsewhere": lambda new: (
        (new / "link").unlink(),
        (new / "link").symlink_to("d"),
    ),
    "another destination of that name": moved_away,
    "an empty destination": lambda new: (new.rename(new.with_name("moved")), new.mkdir()),
}


def with_folders_and_links(folder):
    (saved(folder, by=3.0) / "empty").mkdir()
    (folder / "link").symlink_to("empty")
    return folder


def told(folder):
    return {path: path.lstat().st_ino for path in folder.rglob("*")}


@pytest.mark.parametrize("what", CAME)
def test_folders_and_links_are_what_stands_as_files_are(monkeypatch, tmp_path, what):
    source, target = saved(tmp_path / "ck"), with_folders_and_links(tmp_path / "new")
    then = {}
    meanwhile(monkeypatch, lambda: (CAME[what](target), then.update(told(target))))
    with pytest.raises(DestinationError, match="was written to by something else while this run"):
        surgery.apply(str(source), str(target), PLAN, options=Options(force=True))
    assert told(target) == then


def test_a_folder_is_the_same_whatever_has_come_and_gone_in_it(monkeypatch, tmp_path):
    source, target = saved(tmp_path / "ck"), with_folders_and_links(tmp_path / "new")

    def come_and_go():
        for folder in (target, target / "d", target / "empty"):
            (folder / "lock").touch()
            (folder / "lock").unlink()

    meanwhile(monkeypatch, come_and_go)
    surgery.apply(str(source), str(target), PLAN, options=Options(force=True))
    assert not (target / "empty").exists()
