"""What a command asks of buckets before it is loaded: the same as ever, earlier, and nothing that is told too late."""

import json
import subprocess
import sys
import threading
from collections import Counter
from contextlib import nullcontext
from urllib.parse import unquote

import pytest

from surgery_cli.cli.options import parameters
from surgery_cli.inputs.addresses import Address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.background import IN_BACKGROUND
from surgery_cli.store.filesystem.bucket import Buckets
from surgery_cli.store.filesystem.bucket_locks import guarded
from surgery_cli.store.filesystem.request_counts import requests_before_run, requests_so_far
from surgery_cli.store.locate.ahead import OF_ITEM, asked_ahead, documents_of_item
from tests.buckets.checkpoints import SAMPLES, saved, uploaded
from tests.buckets.server import Faults
from tests.buckets.test_requests import logged

COMMANDS = {
    "one": ("inspect", "{root}/flat"),
    "step": ("inspect", "{root}/run@250"),
    "latest": ("inspect", "{root}/run@latest", "params"),
    "steps": ("inspect", "{root}/run/500"),
    "two": ("diff", "{root}/flat", "{root}/run@500", "params/**"),
    "read": ("verify", "{root}/flat"),
    "preview": (
        "rescale",
        "{root}/flat",
        "{root}/new",
        "params/*/kernel",
        "--by",
        "2",
        "--dry-run",
    ),
    "write": ("rescale", "{root}/flat", "{root}/new", "params/*/kernel", "--by", "2"),
    "step of a run": (
        "cast",
        "{root}/run@500",
        "{root}/run",
        "--as-step",
        "501",
        "--to",
        "float32",
    ),
    "nothing there": ("inspect", "{root}/nowhere"),
    "taken": ("rescale", "{root}/flat", "{root}/run", "params/*/kernel", "--by", "2"),
}


@pytest.fixture
def checkpoints(service):
    uploaded(service, SAMPLES / "digits_standard", f"{service.root}/flat")
    uploaded(service, SAMPLES / "digits_manager", f"{service.root}/run")
    return service


def kinds_of(log):
    """How often each kind of request was made of what stood before, until something was written: from then on chance
    decides which list comes first. So it does of TensorStore's first request, which is for its credentials.
    """
    until = next((n for n, request in enumerate(log) if request.kind == "write"), len(log))
    return Counter(
        (request.kind, request.query.get("prefix", ""))
        for request in log[:until]
        if not request.path.endswith(".surgery")
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_asks_for_nothing_more(name, checkpoints, surgery, monkeypatch):
    arguments = [text.format(root=checkpoints.root) for text in COMMANDS[name]]
    stood = set(checkpoints.names())
    seen = []
    for is_asked_ahead in (True, False):
        with monkeypatch.context() as patch:
            for start, system in filesystem._SERVICES.items():
                patch.setitem(filesystem._SERVICES, start, Buckets(system._service))
            if not is_asked_ahead:
                patch.setattr(parameters, "_asked_ahead", lambda _: nullcontext())
            checkpoints.log.clear()
            result = surgery(*arguments)
            seen.append((result.code, kinds_of(checkpoints.log)))
        for key in set(checkpoints.names()) - stood:
            checkpoints.remove(key)
    assert seen[0] == seen[1]


def test_it_is_asked_before_the_program_is_loaded(bucket, tmp_path):
    """Half of a small edit is the loading of what computes: the lists come meanwhile."""
    uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    loaded_before = (
        "import sys, threading\n"
        "from surgery_cli.inputs.addresses import address\n"
        "from surgery_cli.cli.options.parameters import _asked_ahead\n"
        "with _asked_ahead([address('gs://bkt/ck')]):\n"
        "    print('numpy' in sys.modules, 'tensorstore' in sys.modules)\n"
        "    [t.join() for t in threading.enumerate() if t.name == 'surgery-ahead']\n"
    )
    bucket.log.clear()
    command = [sys.executable, "-c", loaded_before]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
    assert {request.query.get("prefix", "") for request in bucket.log} == {"ck", ""}


@pytest.fixture
def begun(service):
    """A place where nothing stands, of which that was asked ahead, and answered; somebody makes something there now."""
    place = f"{service.root}/runs/new"
    service.put("bkt", "runs/beside", b"x")
    service.log.clear()
    with asked_ahead([Address(place)]):
        wait_for_background()
        service.put("bkt", "runs/new/made", b"x")
        yield place


def wait_for_background():
    for thread in [one for one in threading.enumerate() if one.name == IN_BACKGROUND]:
        thread.join()


def test_what_was_asked_ahead_is_told_once(begun, service):
    filesystem.forget(begun, but_begun=True)
    filesystem.look_ahead(begun, around=True)
    assert not filesystem.exists(begun)
    assert [request.kind for request in service.log] == ["list", "list"]
    filesystem.forget(begun, but_begun=True)
    filesystem.look_ahead(begun, around=True)
    assert filesystem.exists(begun)


def test_who_asks_whether_something_has_changed_hears_what_stands_there_now(begun):
    filesystem.forget(begun)
    filesystem.look_ahead(begun, around=True)
    assert filesystem.exists(begun)
    assert filesystem.names(begun.rpartition("/")[0]) == ["beside", "new"]


@pytest.mark.parametrize("change", [lambda place: filesystem.write(f"{place}/own", b"x")])
def test_what_the_command_itself_makes_there_is_seen(begun, change):
    change(begun)
    filesystem.forget(begun, but_begun=True)
    filesystem.look_ahead(begun, around=True)
    assert filesystem.names(begun) == ["made", "own"]


def test_nothing_is_kept_for_the_next_command(service):
    place = f"{service.root}/runs/new"
    with asked_ahead([Address(place)]):
        wait_for_background()
    service.put("bkt", "runs/new/made", b"x")
    filesystem.forget(place, but_begun=True)
    filesystem.look_ahead(place, around=True)
    assert filesystem.exists(place)


def test_what_is_asked_ahead_is_counted(checkpoints, surgery):
    """By the run whose command asked, and by that alone."""
    to = f"{checkpoints.root}/new"
    edit = ("params/*/kernel", "--by", "2", "--json")
    for more in (("--dry-run",), ()):
        checkpoints.log.clear()
        told = json.loads(surgery("rescale", f"{checkpoints.root}/flat", to, *edit, *more).out)
        if not more:
            assert told["requests"]["other"] == logged(checkpoints).other[0]
        for place in ("flat", "new"):
            filesystem.forget(f"{checkpoints.root}/{place}")
    surgery("inspect", f"{checkpoints.root}/flat")
    assert requests_before_run() == requests_so_far()


def test_what_fails_ahead_is_said_where_it_is_asked(bucket, surgery):
    bucket.faults = Faults(kind="403", every=1)
    result = surgery("inspect", "gs://bkt/ck")
    assert result.code == 3
    assert "does not permit" in result.err
    assert "Traceback" not in result.err


def test_documents_that_a_run_has_made_are_asked_for_without_a_look(service):
    """Their versions are known: those of a result come while it is listed."""
    new = f"{service.root}/new"
    with guarded(path_at(new), lambda: None):
        for name in ("_METADATA", "d/0f", "array_metadatas/process_0"):
            filesystem.put(f"{new}/{name}", name.encode())
        service.put("bkt", "new/_sharding", b"of another")
        service.log.clear()
        filesystem.fetch_made(new, documents_of_item)
        wait_for_background()
        read = sorted(request.path.rpartition("/new")[2] for request in service.log)
        assert [unquote(path)[1:] for path in read] == ["_METADATA", "array_metadatas/process_0"]
        assert filesystem.read(f"{new}/_METADATA") == b"_METADATA"
    assert [request.kind for request in service.log] == ["read", "read", "list"]


def test_documents_of_a_result_are_read_once(checkpoints, surgery):
    checkpoints.log.clear()
    edit = ("params/*/kernel", "--by", "2")
    assert not surgery("rescale", f"{checkpoints.root}/flat", f"{checkpoints.root}/new", *edit).code
    read = (unquote(one.path) for one in checkpoints.log if one.kind == "read")
    read = Counter(path.rpartition("/new/")[2] for path in read if "/new/" in path)
    assert {read[name] for name in OF_ITEM} <= {0, 1}
    assert read[
        "manifest.ocdbt"
    ]  # of the others the very same may have been read for an earlier test


def test_the_first_request_of_tensorstore_is_one_that_is_needed(checkpoints, surgery):
    """By which it finds its credentials, and says so on standard error: that is no line of ours."""
    checkpoints.log.clear()
    surgery("inspect", f"{checkpoints.root}/flat")
    assert not [request.target for request in checkpoints.log if request.status == 404]


@pytest.mark.parametrize("command", [("inspect",), ("verify",)])
def test_what_tensorstore_says_of_its_credentials_is_not_said(command, bucket, tmp_path):
    uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    program = [sys.executable, "-m", "surgery_cli", *command, "gs://bkt/ck"]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_nor_by_another_thread_that_asks_at_the_same_time(bucket, tmp_path):
    """Whoever comes second waits for the first answer: theirs was the first request otherwise, and said so."""
    uploaded(bucket, saved(tmp_path / "ck"), "gs://bkt/ck")
    program = (
        "import threading, tensorstore as ts\n"
        "from surgery_cli.inputs.buckets import BucketPath\n"
        "from surgery_cli.store import filesystem\n"
        "def ask():\n"
        "    spec = filesystem.kvstore(BucketPath('gs://bkt/ck'))\n"
        "    ts.KvStore.open(spec).result().read('_METADATA').result()\n"
        "threads = [threading.Thread(target=ask) for _ in range(16)]\n"
        "[t.start() for t in threads]\n"
        "[t.join() for t in threads]\n"
    )
    for _ in range(3):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
