"""What is asked of a bucket at the same time, and what that must not change."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.planning import operation_from_options, plan_of
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.background import IN_BACKGROUND
from surgery_cli.store.filesystem.deferred_imports import deferred
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import saved, uploaded
from tests.buckets.server import PATIENCE_SECONDS, Faults

LARGE = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
TREE = {"params": {"edited": LARGE, "kept": -LARGE}}


def hold_copies(server, seconds_after=0.0):
    """Let copies wait until a large leaf was read, and longer; what they have waited for."""
    started, seen = time.monotonic(), []

    def are_held(kind):
        if not seen and any(request.sent > LARGE.nbytes // 2 for request in server.log):
            seen.append(time.monotonic())
        is_over = time.monotonic() > (
            seen[0] + seconds_after if seen else started + PATIENCE_SECONDS
        )
        return kind == "copy" and not is_over

    server.log.clear()
    server.faults = Faults(are_held=are_held)
    return seen


def rescaled(by):
    return plan_of([operation_from_options("rescale", {"at": "params/edited", "by": by})])


def test_leaves_are_read_while_others_are_copied(bucket, tmp_path):
    there = uploaded(bucket, saved(tmp_path / "ck", TREE), "gs://bkt/ck")
    seen = hold_copies(bucket)
    surgery.apply(there, "gs://bkt/new", rescaled(2.0))
    assert seen
    result = open_checkpoint("gs://bkt/new")
    for name, expected in (("edited", 2 * LARGE), ("kept", -LARGE)):
        np.testing.assert_array_equal(result.read(LeafPath(("params", name))), expected)


def test_what_fails_meanwhile_leaves_nothing(bucket, tmp_path):
    """Copies that are still on their way when a run fails have come before all that was built is removed."""
    there = uploaded(bucket, saved(tmp_path / "ck", TREE), "gs://bkt/ck")
    before = bucket.names()
    seen = hold_copies(bucket, seconds_after=0.5)
    with pytest.raises(SurgeryError, match="finite"):
        surgery.apply(there, "gs://bkt/new", rescaled(1e39))
    assert seen
    assert bucket.names() == before


def test_a_copy_that_fails_meanwhile_fails_the_run(bucket, tmp_path):
    there = uploaded(bucket, saved(tmp_path / "ck", TREE), "gs://bkt/ck")
    before = bucket.names()
    bucket.faults = Faults(kind="403", every=1, among=lambda kind: kind == "copy")
    with pytest.raises(SurgeryError, match="does not permit"):
        surgery.apply(there, "gs://bkt/new", rescaled(2.0))
    bucket.faults = Faults()
    assert bucket.names() == before


def test_a_list_from_before_something_was_made_tells_nothing(service):
    for what, place in (
        (lambda file: filesystem.write(file, b"x"), f"{service.root}/runs/new"),
        (filesystem.delete, f"{service.root}/runs/old"),
    ):
        if place.endswith("old"):
            service.put("bkt", "runs/old", b"x")
        filesystem.forget(f"{service.root}/runs")
        service.log.clear()
        filesystem.look_ahead(place, around=True)
        listed = [request.query["prefix"] for request in service.log if request.status == 200]
        assert set(listed) == {place.partition("bkt/")[2], "runs/"}
        was_there = place.endswith("old")
        what(place)
        assert filesystem.exists(place) is not was_there
        names = filesystem.names(f"{service.root}/runs") if not was_there else ["new"]
        assert names == ["new"]


@pytest.mark.parametrize("is_there", [True, False])
def test_what_is_known_is_not_asked_for_ahead(service, is_there):
    """A round of requests came to every run so: the result was listed, and at once listed again."""
    folder = f"known-{is_there}"
    service.put("bkt", f"{folder}/beside", b"x")
    if is_there:
        service.put("bkt", f"{folder}/ck/data", b"x")
    place = f"{service.root}/{folder}/ck"
    assert filesystem.exists(place) is is_there
    service.log.clear()
    for _ in range(2):
        filesystem.look_ahead(place, around=True)
        assert filesystem.exists(place) is is_there
        assert filesystem.exists(f"{place}/data") is is_there
        assert filesystem.names(f"{service.root}/{folder}") == ["beside", "ck"][: 1 + is_there]
    assert [request.query["prefix"] for request in service.log] == [f"{folder}/"]


def test_nothing_that_was_asked_for_before_comes_after_a_reset_of_the_server(service):
    """Else a test that counts requests fails by chance, by those of the test before."""
    service.faults = Faults(latency=0.5)
    filesystem.forget(f"{service.root}/runs")
    filesystem.look_ahead(f"{service.root}/runs/new", around=True)
    service.reset()
    assert not [thread for thread in threading.enumerate() if thread.name == IN_BACKGROUND]
    assert service.log == []


CLIENT = """
import sys
from surgery_cli.store.filesystem.google_storage import GoogleStorage
print(type(GoogleStorage()._client).__name__, *(name in sys.modules for name in sys.argv[1:]))
"""


@pytest.mark.parametrize("asked", [None, "false", "true"])
def test_the_client_of_gs_starts_without_what_only_zonal_buckets_need(bucket, monkeypatch, asked):
    name = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
    if asked is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, asked)
    heavy = ("google.cloud.storage", "google_auth_oauthlib.flow")
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, *heavy], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["GCSFileSystem", *[str(asked == "true")] * 2]


SIGNING = """
import sys
from surgery_cli.store.filesystem.google_storage import GoogleStorage
GoogleStorage()._client
assert "cryptography" not in sys.modules
from google.auth import crypt
from google.oauth2.service_account import Credentials
private, public = sys.stdin.read().split("|")
info = {"client_email": "a@b.c", "token_uri": "http://127.0.0.1:1/", "private_key": private}
made = Credentials.from_service_account_info(info)
verifier, signed = crypt.RSAVerifier.from_string(public), made.sign_bytes(b"x")
assert isinstance(made.signer, crypt.RSASigner) and not isinstance(verifier, crypt.RSASigner)
print(type(made.signer).__module__, verifier.verify(b"x", signed), verifier.verify(b"y", signed))
"""


def test_the_client_of_gs_signs_with_a_key_file_by_what_it_did_not_load_at_its_start(bucket):
    key = rsa.generate_private_key(65537, 2048)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    keys = b"|".join((private, public)).decode()
    command = [sys.executable, "-c", SIGNING]
    done = subprocess.run(command, check=False, input=keys, capture_output=True, text=True)
    assert done.stdout.split() == ["google.auth.crypt.rsa", "True", "False"], done.stderr


def test_what_is_imported_later_is_there_when_it_is_used(monkeypatch):
    monkeypatch.delitem(sys.modules, "xmlrpc.client", raising=False)
    with deferred("xmlrpc.client"):
        from xmlrpc.client import Binary, dumps
    assert "xmlrpc.client" not in sys.modules
    assert Binary(b"x").data == b"x"
    assert dumps(("x",)).startswith("<params>")
    assert "xmlrpc.client" in sys.modules
    assert isinstance(Binary(b"x"), Binary)
    assert not isinstance(b"x", Binary)


def test_what_a_class_is_made_of_is_imported_at_once(monkeypatch):
    monkeypatch.delitem(sys.modules, "xmlrpc.client", raising=False)
    with deferred("xmlrpc.client"):
        from xmlrpc.client import Binary

        class Own(Binary):
            pass

    assert Own.__mro__[1] is sys.modules["xmlrpc.client"].Binary
    assert Own(b"x").data == b"x"


@pytest.mark.parametrize("use_zarr3", [False, True])
def test_documents_of_arrays_are_read_at_once(service, tmp_path, use_zarr3):
    """Each document waits until all of them were asked for."""
    tree = {"params": {f"leaf_{n}": np.full(3, n, np.float32) for n in range(8)}}
    folder = saved(tmp_path / "ck", tree, use_ocdbt=False, use_zarr3=use_zarr3)
    there = uploaded(service, folder, f"{service.root}/ck")
    is_over = time.monotonic() + PATIENCE_SECONDS

    def came():
        document = "zarr.json" if use_zarr3 else ".zarray"
        asked = [r for r in service.log if r.kind == "read" and r.path.endswith(document)]
        return len(asked)

    def are_held(kind):
        return kind == "read" and 0 < came() < len(tree["params"]) and time.monotonic() < is_over

    service.log.clear()
    service.faults = Faults(are_held=are_held)
    opened = open_checkpoint(there)
    assert len(opened.tree) == len(tree["params"])
    assert time.monotonic() < is_over
    assert came() == len(tree["params"])
