"""`doctor` on a bucket: what its listing and metadata tell of a run, with nothing written there."""

import json
import signal
import subprocess
import sys
import time

import pytest

from surgery_cli import surgery as library
from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, SAMPLES, saved, uploaded
from tests.buckets.server import Faults


def _locked(service, name, owner):
    fields = {field: getattr(owner, field) for field in owner.__struct_fields__}
    said = {**fields, "run": "1", "builds": f"{service.root}/run/{name}"}
    service.put("bkt", f"run/.{name}.surgery-tmp-lock", json.dumps(said).encode())


def test_steps_marks_and_locks_of_a_run_are_told_and_nothing_is_written(service):
    run = uploaded(service, SAMPLES / "digits_manager", f"{service.root}/run")
    service.upload(SAMPLES / "digits_manager" / "250", f"{service.root}/run/750")
    service.upload(SAMPLES / "digits_manager" / "250", f"{service.root}/run/800")
    service.remove(f"run/750/{MARK}")
    service.remove("run/800/default/manifest.ocdbt")
    here = Owner.here()
    _locked(service, "900", here)
    _locked(service, "910", Owner(here.host, here.machine, 2**22 - 1, "1"))
    before = service.names()

    report = library.doctor(run, settled_seconds=0)

    needs_mark = service.root.startswith("gs://")
    assert service.names() == before
    assert {one.path: (one.state, one.of) for one in report.places} == {
        "250": ("whole", ""),
        "500": ("whole", ""),
        "750": ("unfinished", "Orbax") if needs_mark else ("whole", ""),
        "800": ("damaged", ""),
        ".900.surgery-tmp-lock": ("writing", "surgery"),
        ".910.surgery-tmp-lock": ("leftover", "surgery"),
    }
    assert report.exit_code == 1
    dead = report.places[-1]
    assert "surgery clean" in dead.todo
    assert library.doctor(f"{run}/250").counts == {"whole": 1}


@pytest.mark.parametrize("harm", ["missing", "truncated"])
def test_a_data_file_that_the_tree_of_a_store_lies_in_is_named_as_what_it_is(
    service, tmp_path, surgery, harm
):
    """By name, and not in the words of the service."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    (file,) = (name for name in service.names() if name.startswith("ck/d/"))
    if harm == "missing":
        service.remove(file)
    else:
        service.put("bkt", file, service.content(file)[:20])
    told = f"the data file '{service.root}/{file}' is {harm}"
    opened, seen = surgery("inspect", there), surgery("doctor", there, "--settled", "0")
    assert (opened.code, seen.code) == (3, 1)
    assert told in opened.err
    assert told in seen.out


def test_all_that_one_killed_run_has_left_is_one_entry(service, tmp_path, surgery):
    """A run leaves a folder, a journal and a lock; another run's are another entry."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    words = ["rescale", there, f"{service.root}/new", "params/w", "--by", "2", "--resume"]
    service.faults = Faults(latency=0.01)
    with subprocess.Popen([sys.executable, "-m", "surgery_cli", *words]) as run:
        while not any("/new/d/" in name for name in service.names(".new")):
            assert run.poll() is None
            time.sleep(0.005)
        run.send_signal(signal.SIGKILL)
    service.faults = Faults()
    service.settle()
    here = Owner.here()
    _locked(service, "910", Owner(here.host, here.machine, 2**22 - 1, "1"))
    left = {name.split("/")[0] for name in service.names(".new")}
    assert len(left) == 3

    ended = surgery("doctor", service.root, "--settled", "0")

    lines = [line for line in ended.out.splitlines() if line.startswith("leftover")]
    assert [{name for name in left if name in line} for line in lines if ".new" in line] == [left]
    assert ended.out.count("removes it") == len(lines)
    rows = surgery("doctor", f"{service.root}", "--json").document["places"]
    assert left <= {row["path"] for row in rows}


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a checkpoint"])
@pytest.mark.parametrize("where", ["", "/ed"], ids=["the bucket", "a folder"])
def test_a_folder_of_runs_is_looked_at_as_on_a_disk(service, tmp_path, surgery, where, beside):
    for name in ("a", "b"):
        uploaded(service, SAMPLES / "digits_manager", f"{service.root}{where}/{name}")
    if beside:
        uploaded(service, saved(tmp_path / "ck"), f"{service.root}{where}/ck")

    ended = surgery("doctor", f"{service.root}{where}", "--settled", "0", "--json")

    assert ended.code == 0
    rows = {row["path"]: row for row in ended.document["places"]}
    assert rows.keys() == {"a", "b"} | ({"ck"} if beside else set())
    for name in ("a", "b"):
        assert rows[name]["state"] == "apart"
        assert rows[name]["todo"] == f"`surgery doctor {service.root}{where}/{name}` looks at them"
    assert any("'a' and 'b' hold steps or checkpoints" in note for note in ended.document["notes"])
