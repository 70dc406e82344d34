"""A seal on what lies in a bucket: one object, where none stood or in the place of the one that was read."""

import shlex

import numpy as np
import pytest
from flax.serialization import to_bytes

from surgery_cli import surgery as library
from surgery_cli.errors import CheckpointError, SurgeryError
from surgery_cli.inputs.buckets import path_at
from tests.buckets.checkpoints import TREE, saved, uploaded
from tests.buckets.server import Faults


@pytest.fixture
def there(service, tmp_path):
    return uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")


def test_a_sealed_checkpoint_agrees_until_a_byte_changes(service, there, surgery):
    before = set(service.names())
    sealed = surgery("seal", there)
    assert (sealed.code, sealed.err) == (0, "")
    assert set(service.names()) - before == {"ck/surgery.json"}
    assert surgery("verify", there, "--strict").code == 0
    assert surgery("seal", there).code == 0  # nothing has changed
    content = service.content("ck/_METADATA")
    service.put("bkt", "ck/_METADATA", content.replace(b"{", b"{ ", 1))
    assert surgery("verify", there).code == 1
    refused = surgery("seal", there)
    assert (refused.code, "is not what its digest on record says" in refused.err) == (3, True)
    assert surgery("seal", there, "--anew").code == 0
    assert surgery("verify", there, "--strict").code == 0


def test_a_manifest_may_lie_in_a_bucket(service, there, surgery):
    manifest = f"{service.root}/manifests/ck.json"
    assert surgery("seal", there, "--to", manifest).code == 0
    assert surgery("verify", there, "--strict", "--like-manifest", manifest).code == 0
    assert surgery("seal", there, "--to", manifest).code == 2
    assert surgery("seal", there, "--to", f"{there}/inside.json").code == 2
    missing = surgery("verify", there, "--like-manifest", f"{service.root}/none.json")
    assert (missing.code, "cannot be read" in missing.err) == (2, True)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("kind", ["lost", "reset"])
def test_faults_change_no_seal(service, there, kind):
    service.faults = Faults(kind, every=3)
    library.seal(there)
    service.faults = Faults()
    assert library.verify(there).unchecked == 0


def test_what_changes_meanwhile_is_not_sealed(service, there):
    tree = {"params": {"w": np.zeros(12, np.float32)}}
    assert tree != TREE

    def change(request):
        if request.kind == "write" and "surgery.json" in f"{request.path}{request.query}":
            service.before = lambda _: None
            service.put("bkt", "ck/_METADATA", b"{}")

    service.before = change
    with pytest.raises(CheckpointError, match="changed while it was sealed"):
        library.seal(there)
    assert "ck/surgery.json" not in service.names()


def test_who_may_not_write_there_is_told_so(service, there):
    service.faults = Faults("403", every=1, among=lambda kind: kind == "write")
    with pytest.raises(SurgeryError) as refused:
        library.seal(there)
    service.faults = Faults()
    assert refused.value.exit_code == 4
    assert "not writable" not in str(refused.value)
    assert path_at(f"{there}/surgery.json").name not in " ".join(service.names())


@pytest.mark.parametrize("is_file", [False, True])
def test_what_holds_files_in_a_bucket_against_a_list_is_told_and_works(
    service, there, surgery, tmp_path, is_file
):
    """`sha256sum -c` knows no buckets."""
    if is_file:
        (tmp_path / "w.msgpack").write_bytes(to_bytes(TREE))
        service.put("bkt", "one/w.msgpack", (tmp_path / "w.msgpack").read_bytes())
        there = f"{service.root}/one/w.msgpack"
    for sums in (f"{service.root}/my sums", str(tmp_path / "sums")):
        said = surgery("seal", there, "--sha256sums", sums).out
        (line,) = [line for line in said.splitlines() if "sha256sum" in line]
        assert line.endswith("holds the files against it; `sha256sum -c` does in a copy on a disk")
        words = shlex.split(line.split("`")[1])
        assert words == ["surgery", "verify", there, "--like-manifest", sums]
        assert surgery(*words[1:]).code == 0
