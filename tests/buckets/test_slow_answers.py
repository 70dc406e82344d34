"""Who waits for a service that gives nothing is told so, and which address it is."""

import re
import socket
import subprocess
import sys
import threading

import gcsfs.retry
import pytest

from surgery_cli.inputs.buckets import ServiceRefusal
from surgery_cli.store.filesystem import google_storage
from surgery_cli.store.filesystem.bucket_listings import Listings
from surgery_cli.store.filesystem.object_service import StoredObject
from tests.buckets.checkpoints import saved, uploaded

COMMAND = """
import sys
from surgery_cli.inputs import slow_answers
slow_answers.PATIENCE_SECONDS = {patience}
sys.argv = ["surgery", "inspect", {place!r}]
from surgery_cli.__main__ import main
main()
"""


def looked(place, patience):
    code = COMMAND.format(place=place, patience=patience)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("patience", [0.2, 20.0])
def test_what_is_waited_for_is_said_after_a_while(service, tmp_path, patience):
    place = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    service.faults.latency = 1.0
    ended = looked(place, patience)
    assert ended.returncode == 0
    said = re.findall(r"note: (\S+) has given nothing for \d+ s; it is still asked\n", ended.stderr)
    assert bool(said) == (patience == 0.2)
    assert all(one.startswith(service.root) for one in said)


def test_a_library_says_nothing_and_starts_no_thread(service, tmp_path):
    from surgery_cli import surgery

    place = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    surgery.inspect(place)
    assert not any(thread.name == "surgery-waiting" for thread in threading.enumerate())


@pytest.fixture
def silent():
    """The address of a server that takes connections and never answers, and what it was asked."""
    asked = []

    def take():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            held.append(connection)
            asked.append(connection.recv(1 << 16))

    held = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=take, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        listening.shutdown(socket.SHUT_RDWR)
    for connection in held:
        connection.close()


def test_google_s_service_is_not_waited_for_for_ever(silent, monkeypatch):
    """gcsfs by itself is; its pauses are left out here."""
    url, asked = silent

    async def at_once(_seconds):
        return None

    for name in ("STORAGE_EMULATOR_HOST", "TENSORSTORE_GCS_HTTP_URL"):
        monkeypatch.setenv(name, url)
    monkeypatch.setattr(google_storage, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(gcsfs.retry.asyncio, "sleep", at_once)
    with pytest.raises(ServiceRefusal, match="after several tries"):
        google_storage.GoogleStorage().page("bkt", "", "/", None)
    assert sum(one.startswith(b"GET ") for one in asked) == 6


@pytest.mark.parametrize("is_answered", [True, False])
def test_who_gets_no_answer_to_a_list_asks_for_nothing_more(is_answered):
    """Who may not list asks for what he reads by its name; each further question would take minutes of a silent one."""
    looked = []

    class Refusing:
        def page(self, *_):
            raise ServiceRefusal("said no", "x", "y", is_answered=is_answered)

        def look_up(self, bucket, key):
            looked.append(key)
            return StoredObject(key, 3, 0, "1", "")

    listings = Listings(Refusing(), "bkt")
    if is_answered:
        assert listings.find("a/b").size == 3
    else:
        with pytest.raises(ServiceRefusal):
            listings.find("a/b")
    assert bool(looked) == is_answered
