"""What something else saves where a run was killed, or was refused: the run's own words say whose is what."""

import time

import numpy as np
import pytest

from tests.buckets.checkpoints import MARK, below, saved, uploaded
from tests.buckets.test_resume import TREE, command
from tests.buckets.test_second_kill import OTHERS, contents, half_replaced, put, told
from tests.store.cutting import Runs

THIRD = {"params": {"zzz": np.arange(7, dtype=np.float32)}}
SECONDS = 1.1
"""Times on ``s3://`` are in seconds: none of them may tell whose something is."""


@pytest.fixture
def source(service, tmp_path):
    there = f"{service.root}/ck"
    return uploaded(service, saved(tmp_path / "ck", TREE, use_ocdbt=False), there)


@pytest.fixture
def here():
    with Runs("gcsfs", "s3fs") as runs:
        yield runs


def settled(service, begin="new/"):
    """What stands there once nothing is on its way that a killed run has sent."""
    service.settle()
    return below(service, begin)


def save_there(service, folder):
    """Another checkpoint in the place of all that stands there, of which nothing says that it is whole."""
    for name in service.names("new/"):
        service.remove(name)
    service.upload(folder, f"{service.root}/new")
    if f"new/{MARK}" in service.names("new/"):
        service.remove(f"new/{MARK}")


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
def test_what_is_saved_over_something_half_replaced_is_not_replaced(
    service, source, here, tmp_path, surgery, force
):
    service.upload(saved(tmp_path / "old", OTHERS, use_ocdbt=False), f"{service.root}/new")
    old = contents(service) | {f"new/{MARK}": b""}
    put(service, half_replaced(service, here, command(source, service, "--force"), old))
    save_there(service, saved(tmp_path / "third", THIRD, use_ocdbt=False))
    theirs = settled(service)
    for words in (command(source, service, *force), ["clean", f"{service.root}/new"]):
        ended = here(*words)
        assert ended["code"] == 2, ended["said"]
        assert "was written to by something else since" in ended["said"]
        assert settled(service) == theirs


def test_nor_where_clean_was_killed_in_between(service, source, here, tmp_path):
    """It makes the lock its own: what stood there before is not told by when that was."""
    third = saved(tmp_path / "third", THIRD)
    for cut in range(2, 8):
        put(service, {})
        killed = here(*command(source, service), cut=["request+", 40, "SIGKILL"])
        assert killed["code"] == -9
        assert settled(service)
        save_there(service, third)
        theirs = settled(service)
        time.sleep(SECONDS)
        ended = here("clean", f"{service.root}/new", "--stale", cut=["request+", cut, "SIGKILL"])
        assert settled(service) == theirs
        assert ended["code"] == -9
        assert here(*command(source, service))["code"] == 2
        assert settled(service) == theirs


@pytest.mark.parametrize("is_another", [True, False], ids=["another save", "a file less"])
def test_a_run_that_was_refused_has_replaced_nothing(
    service, source, here, tmp_path, surgery, is_another
):
    """Where no mark says that the old one is whole, it was taken for half replaced, and `clean` finished that."""
    uploaded(service, saved(tmp_path / "old", OTHERS, use_ocdbt=False), f"{service.root}/new")
    service.put("bkt", "new/notes.txt", b"mine")
    if service.scheme == "s3":
        service.remove(f"new/{MARK}")
    third = saved(tmp_path / "third", THIRD, use_ocdbt=False)
    seen = []

    def before(request):
        asked = f"{request.path} {request.query.get('name', '')}"
        if not seen and "-journal" in asked and service.kind_of(request) == "write":
            seen.append(request)
            if not is_another:
                service.remove("new/notes.txt")
                return
            marks = {n: service.content(n) for n in service.names("new/") if n.endswith(MARK)}
            save_there(service, third)
            for name, content in marks.items():
                service.put("bkt", name, content)

    service.before = before
    ended = here(*command(source, service, "--force"))
    service.before = lambda _: None
    assert ended["code"] == 2
    assert seen
    theirs = settled(service)
    for words in (["clean", f"{service.root}/new", "--dry-run"], ["clean", f"{service.root}/new"]):
        said = here(*words)
        assert said["code"] == 0, said["said"]
        assert "in its place" not in said["said"]
    assert settled(service) == theirs
    assert not service.names(".new")
    assert surgery("inspect", f"{service.root}/new").code == 0


HARMS = {
    "gone": lambda service, name: service.remove(name),
    "another": lambda service, name: service.put("bkt", name, b"another"),
}


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("then", ["clean", "resume"])
def test_its_own_copies_are_known_where_what_was_built_is_not_what_it_was(
    service, source, here, harm, then
):
    words = command(source, service)
    total = here(*words, cut=["request+", 10**6, "SIGKILL"])["counted"]
    whole = settled(service)
    for back in range(20, total):
        put(service, {})
        assert here(*words, cut=["request+", total - back, "SIGKILL"])["code"] == -9
        leaves = [name for name in settled(service) if name.endswith("0.0")]
        if 1 <= len(leaves) <= 5:
            break
    assert leaves
    built = next(n for n in service.names() if "surgery-tmp" in n and n.endswith("/new/_METADATA"))
    HARMS[harm](service, built)
    ended = here(*(words if then == "resume" else ["clean", f"{service.root}/new"]))
    assert ended["code"] == 0, ended["said"]
    assert not service.names(".new")
    assert settled(service).keys() == (whole.keys() if then == "resume" else set())


def test_where_both_were_removed_nothing_is_half_replaced(service, source, here, tmp_path, surgery):
    """As it is said that one should; what the lock says is of what stood there."""
    new = f"{service.root}/new"
    service.upload(saved(tmp_path / "old", OTHERS, use_ocdbt=False), new)
    old = contents(service) | {f"new/{MARK}": b""}
    words = [word for word in command(source, service, "--force") if word != "--resume"]
    put(service, half_replaced(service, here, words, old))
    for moment in range(3, 60):
        here("clean", new, cut=["request+", moment, "SIGKILL"])
        lock = settled(service, ".new.surgery-tmp-lock")
        if any(b'"mixed": true' in content for content in lock.values()):
            break
    built = next(n for n in service.names() if "surgery-tmp" in n and n.endswith("/new/_METADATA"))
    service.remove(built)
    refused = surgery("clean", new)
    assert refused.code == 1
    for begin in ("new/", f"{built.split('/')[0]}/"):
        for name in service.names(begin):
            service.remove(name)
    assert surgery("clean", new).code == 0
    assert not service.names(".new")
    assert here(*[word for word in words if word != "--force"])["code"] == 0


@pytest.mark.parametrize("is_checkpoint", [False, True], ids=["a file", "a checkpoint"])
def test_what_is_saved_where_a_killed_run_had_put_nothing(
    service, source, here, tmp_path, is_checkpoint
):
    """The advice to add `--force` removed it, whatever it was."""
    words = command(source, service)
    assert here(*words, cut=["entry+", 3, "SIGKILL"])["code"] == -9
    assert not settled(service)
    if is_checkpoint:
        save_there(service, saved(tmp_path / "third", THIRD, use_ocdbt=False))
        service.put("bkt", f"new/{MARK}", b"")
    else:
        service.put("bkt", "new/hello", b"x")
    theirs = settled(service)
    refused = here(*words)
    assert refused["code"] == 2
    assert f"'{service.root}/new' exists" in refused["said"]
    assert settled(service) == theirs
    forced = here(*words, "--force")
    if is_checkpoint:  # as without a run that was killed
        assert forced["code"] == 0, forced["said"]
        return
    assert forced["code"] == 2
    assert settled(service) == theirs
    service.remove("new/hello")
    assert here(*words)["code"] == 0


def test_what_such_a_run_then_half_replaces_is_said_to_be(service, source, here, tmp_path, surgery):
    """The run that was killed first was to put it in the place of nothing, and said so in its lock."""
    words = command(source, service)
    assert here(*words, cut=["entry+", 3, "SIGKILL"])["code"] == -9
    service.upload(saved(tmp_path / "old", OTHERS, use_ocdbt=False), f"{service.root}/new")
    old = contents(service) | {f"new/{MARK}": b""}
    put(service, half_replaced(service, here, [*words, "--force"], old))
    assert told(service, surgery) == ""
    assert surgery("clean", f"{service.root}/new").code == 0
    assert told(service, surgery) == "new"
