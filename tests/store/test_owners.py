"""What killed runs leave says whose it is from its first moment; it goes when that run is dead, and never before."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import flax.serialization
import numpy as np
import pytest

from surgery_cli import surgery
from surgery_cli.errors import WriteError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.owners import OWNER_FILE, make_owned
from surgery_cli.store.filesystem.processes import Owner, State
from surgery_cli.store.write import staging
from surgery_cli.store.write.leftovers import leftovers_of

VALUES = np.arange(64, dtype=np.float32)
HERE = Path(__file__).parent


def _file(path, factor=1):
    path.write_bytes(flax.serialization.msgpack_serialize({"w": VALUES * factor}))
    return path


def _by(n):
    return plan_of([operation_from_options("rescale", {"at": "w", "by": str(n)})])


def _left_by(place, owner, name="new"):
    """A staging directory of that owner beside ``place``."""
    directory = place / f".{name}.surgery-tmp-0123abcd"
    make_owned(directory)
    (directory / OWNER_FILE).write_text(json.dumps(owner), encoding="utf-8")
    (directory / name).mkdir()
    (directory / name / "data").write_bytes(b"x" * 1000)
    return directory


def _owner(**other):
    here = Owner.here()
    owner = {"host": here.host, "machine": here.machine, "pid": here.pid, "started": here.started}
    return owner | other


def _ended_pid():
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def _states(place):
    return [left.state for left in leftovers_of(place / "new")]


def test_a_run_says_whose_its_staging_is_and_nothing_of_that_is_in_the_result(tmp_path):
    seen = []

    def look(_):
        (left,) = leftovers_of(tmp_path / "new")
        seen.append((left.owner, left.state))

    surgery.apply(str(_file(tmp_path / "w")), str(tmp_path / "new"), _by(2), listener=look)
    assert seen[0] == (Owner.here(), State.LIVING)
    assert seen[0][0].pid == os.getpid()
    assert seen[0][0].host == platform.node()
    assert sorted(p.name for p in tmp_path.iterdir()) == [".new.surgery.json", "new", "w"]


def test_who_is_dead_is_told_by_number_and_start(tmp_path):
    assert _left_by(tmp_path, _owner(pid=_ended_pid()))
    assert _states(tmp_path) == [State.DEAD]
    assert surgery.clean(str(tmp_path / "new")).removed[0].bytes > 1000
    _left_by(tmp_path, _owner(started="12"))  # the number is another process's by now
    assert _states(tmp_path) == [State.DEAD]
    assert len(surgery.clean(str(tmp_path)).removed) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_ended_and_was_not_waited_for_is_dead(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    stat = Path(f"/proc/{child.pid}/stat").read_text(encoding="ascii")
    started = stat.rpartition(")")[2].split()[19]
    _left_by(tmp_path, _owner(pid=child.pid, started=started))
    assert _states(tmp_path) == [State.LIVING]
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert _states(tmp_path) == [State.DEAD]
    child.wait()


@pytest.mark.parametrize(
    ("owner", "state"),
    [({"machine": "01234567"}, "elsewhere"), (None, "unknown"), ({"pid": "x"}, "unknown")],
)
def test_what_cannot_be_told_is_removed_only_with_stale(tmp_path, owner, state):
    left = _left_by(tmp_path, _owner(**(owner or {})) if owner is not None else {})
    kept = surgery.clean(str(tmp_path / "new"))
    assert [row.state for row in kept.kept] == [state]
    assert "`--stale` removes them" in kept.notes[0]
    assert left.exists()
    assert surgery.clean(str(tmp_path / "new"), stale=True, dry_run=True).removed
    assert left.exists()
    assert surgery.clean(str(tmp_path / "new"), stale=True).removed[0].path == str(left)
    assert not left.exists()


def test_a_living_runs_staging_is_never_removed(tmp_path):
    left = _left_by(tmp_path, _owner())
    found = surgery.clean(str(tmp_path / "new"), stale=True)
    assert (found.removed, [row.state for row in found.kept]) == ([], ["living"])
    options = surgery.Options(force=True)
    report = surgery.apply(
        str(_file(tmp_path / "w")), str(tmp_path / "new"), _by(2), options=options
    )
    assert left.exists()
    assert any(f"(process {os.getpid()}) is writing to" in note for note in report.notes)


def test_force_removes_what_dead_runs_to_the_same_destination_left_and_nothing_else(tmp_path):
    source = str(_file(tmp_path / "w"))
    left = _left_by(tmp_path, _owner(pid=_ended_pid()))
    other = _left_by(tmp_path, _owner(pid=_ended_pid()), name="other")
    (tmp_path / ".new.surgery-tmp-mine").mkdir()
    looked = surgery.plan(source, _by(2), destination=str(tmp_path / "new"))
    assert any(f"`surgery clean {tmp_path / 'new'}` removes it" in note for note in looked.notes)
    surgery.apply(source, str(tmp_path / "new"), _by(2))
    assert left.exists()
    options = surgery.Options(force=True)
    report = surgery.apply(source, str(tmp_path / "new"), _by(2), options=options)
    assert f"removed '{left}', which a killed run had left" in report.notes
    assert not left.exists()
    assert other.exists()
    assert (tmp_path / ".new.surgery-tmp-mine").exists()


def test_a_staging_directory_is_never_anonymous(tmp_path):
    """Killed after each thing that is done to files, beginning with the very first."""
    source = _file(tmp_path / "w")
    script = (
        "import os, signal, sys\n"
        "from surgery_cli.planning import operation_from_options, plan_of\n"
        "from surgery_cli import surgery\n"
        "import surgery_cli.surgery.apply\n"
        "source, place = sys.argv[1:]\n"
        "plan = plan_of([operation_from_options('rescale', {'at': 'w', 'by': '2'})])\n"
        "for moment in range(1, 16):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        seen = [0]\n"
        "        def listen(event, arguments):\n"
        "            if seen[0] or 'surgery-tmp' in str(arguments[:1]):\n"
        "                seen[0] += event in ('open', 'os.mkdir', 'os.rename', 'os.chmod')\n"
        "            if seen[0] == moment: signal.raise_signal(9)\n"
        "        sys.addaudithook(listen)\n"
        "        surgery.apply(source, f'{place}/{moment}/new', plan)\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] in (0, 9)\n"
    )
    subprocess.run([sys.executable, "-c", script, source, tmp_path / "runs"], check=True)
    struck = 0
    for place in (tmp_path / "runs").iterdir():
        found = leftovers_of(place / "new")
        struck += len(found)
        assert [left.state for left in found] == [State.DEAD] * len(found), place
        assert {p.name for p in place.iterdir()} - {left.path.name for left in found} <= {
            "new", ".new.surgery.json",
        }  # fmt: skip
        surgery.clean(str(place))
        assert {path.name for path in place.glob(".*")} <= {".new.surgery.json"}
    assert struck > 5


def _pair(place):
    """What stands: the factor of the file, and that of its record, as far as there is one."""
    new, record = place / "new", place / ".new.surgery.json"
    values = flax.serialization.msgpack_restore(new.read_bytes())["w"]
    of_record = None
    if record.exists():
        of_record = float(json.loads(record.read_text())["plan"]["edits"][0]["by"])
    return float(values[1]), of_record


def test_a_file_never_stands_beside_the_record_of_another(tmp_path):
    _file(tmp_path / "w")
    script = (
        "import os, signal, sys\n"
        "from surgery_cli.cli.main import run\n"
        "from surgery_cli.store.write import staging\n"
        "source, runs = sys.argv[1:]\n"
        "def edit(place, by):\n"
        "    try: run(['rescale', source, f'{place}/new', 'w', '--by', by, '-q', '--force'])\n"
        "    except SystemExit as end: assert not end.code\n"
        "for moment in range(1, 16):\n"
        "    place = f'{runs}/{moment}'\n"
        "    os.makedirs(place)\n"
        "    edit(place, '2')\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        give_name, seen = staging.Staging._give_name, [0]\n"
        "        def listen(event, arguments):\n"
        "            if seen[0] and event.startswith(('os.', 'open', 'ctypes', 'shutil')):\n"
        "                seen[0] += 1\n"
        "                if seen[0] == moment + 1: signal.raise_signal(9)\n"
        "        sys.addaudithook(listen)\n"
        "        def counting(self): seen[0] = 1; give_name(self)\n"
        "        staging.Staging._give_name = counting\n"
        "        edit(place, '3')\n"
        "        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] in (0, 9)\n"
    )
    (tmp_path / "runs").mkdir()
    subprocess.run([sys.executable, "-c", script, tmp_path / "w", tmp_path / "runs"], check=True)
    seen = {_pair(place) for place in (tmp_path / "runs").iterdir()}
    assert seen <= {(2.0, 2.0), (2.0, None), (3.0, None), (3.0, 3.0)}
    assert (3.0, 3.0) in seen


def test_an_error_says_what_could_not_be_removed(tmp_path, monkeypatch):
    def refuse(*_, **__):
        """As a directory of somebody else's."""

    def strike(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging, "sync_tree", strike)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", refuse)
        with pytest.raises(WriteError) as caught:
            surgery.apply(str(_file(tmp_path / "w")), str(tmp_path / "new"), _by(2))
    (left,) = tmp_path.glob(".new.surgery-tmp-*")
    (problem,) = caught.value.problems
    assert f"'{left}' could not be removed" in problem.fix
    assert "nothing was left behind" not in problem.fix


@pytest.mark.parametrize(
    "run",
    [lambda *places: surgery.apply(*places, _by(2)), surgery.rescue],
    ids=["apply", "rescue"],
)
def test_a_result_says_what_could_not_be_removed_beside_it(tmp_path, monkeypatch, run):
    monkeypatch.setattr(filesystem, "delete_below", lambda _: None)
    said = [str(note) for note in run(str(_file(tmp_path / "w")), str(tmp_path / "new")).notes]
    (left,) = tmp_path.glob(".new.surgery-tmp-*")
    assert any(text.startswith(f"'{left}' could not be removed") for text in said)


def test_an_error_after_the_destination_has_its_name_says_that_it_stands(tmp_path, monkeypatch):
    def strike(_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(staging, "sync_directory", strike)
    with pytest.raises(WriteError) as caught:
        surgery.apply(str(_file(tmp_path / "w")), str(tmp_path / "new"), _by(2))
    assert f"'{tmp_path / 'new'}' is complete" in caught.value.problems[0].fix
    assert "nothing was left" not in str(caught.value)
    assert surgery.verify(str(tmp_path / "new")).agrees


def test_what_cannot_be_cleaned_is_a_failed_write(tmp_path, monkeypatch):
    _left_by(tmp_path, _owner(pid=_ended_pid()))

    def refuse(path, **_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(WriteError, match="cannot be removed"):
        surgery.clean(str(tmp_path / "new"))


def test_the_command_says_what_it_removed_and_kept(tmp_path, capsys):
    from surgery_cli.cli.main import run

    def clean(*words):
        with pytest.raises(SystemExit) as end:
            run(["clean", *map(str, words)])
        return end.value.code, capsys.readouterr().out

    assert clean(tmp_path / "new") == (0, "nothing was left by killed runs\n")
    code, out = clean(tmp_path / "not" / "new")  # as in a script, before the first run
    assert (code, f"note: '{tmp_path}/not' does not exist" in out) == (0, True)
    dead = _left_by(tmp_path, _owner(pid=_ended_pid()))
    code, out = clean(tmp_path / "new", "--dry-run")
    assert (code, dead.exists()) == (0, True)
    assert out.startswith(f"would remove {dead}: ")
    code, out = clean(dead)
    assert (code, dead.exists()) == (0, False)
    living = _left_by(tmp_path, _owner())
    code, out = clean(tmp_path, "--json")
    assert (code, json.loads(out)["kept"][0]["path"]) == (1, str(living))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
