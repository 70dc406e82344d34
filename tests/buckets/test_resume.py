"""A run to a bucket that was begun with `--resume` goes on from where it was cut short."""

import itertools
import json
import re
import shlex

import msgspec
import numpy as np
import orbax.checkpoint as ocp
import pytest

from surgery_cli.inputs.buckets import path_at
from surgery_cli.store.filesystem.bucket_locks import Lock
from surgery_cli.store.filesystem.processes import Owner
from tests.buckets.checkpoints import MARK, saved, uploaded
from tests.buckets.server import Faults
from tests.buckets.test_destinations import downloaded
from tests.store.cutting import Runs

RANDOM = np.random.default_rng(3)
TREE = {
    "params": {name: RANDOM.normal(size=(32, 32)).astype(np.float32) for name in "abcdefg"},
    "opt_state": {"count": np.int32(3)},
}
LOCK = ".new.surgery-tmp-lock"


@pytest.fixture
def run(service):
    with Runs("gcsfs" if service.root.startswith("gs") else "s3fs") as runs:
        yield runs


@pytest.fixture
def source(request, service, tmp_path):
    how = getattr(request, "param", {})
    return uploaded(service, saved(tmp_path / "ck", TREE, **how), f"{service.root}/ck")


in_both_layouts = pytest.mark.parametrize(
    "source", [{}, {"use_ocdbt": False}], ids=["ocdbt", "per-leaf"], indirect=True
)


def command(source, service, *more, by="2"):
    edit = ("rescale", source, f"{service.root}/new", "params", "--by", by)
    return (*edit, "--optimizer", "keep", "--quiet", "--resume", *more)


def check(service, tmp_path, factor=2):
    with ocp.PyTreeCheckpointer() as checkpointer:
        tree = checkpointer.restore(downloaded(service, "new", tmp_path / f"down{factor}"))
    for name, values in TREE["params"].items():
        np.testing.assert_array_equal(tree["params"][name], values * np.float32(factor))
    assert tree["opt_state"]["count"] == 3
    assert not [name for name in service.names() if "surgery-tmp" in name]


@pytest.mark.sampled(2)
@in_both_layouts
def test_what_was_killed_goes_on(run, service, source, tmp_path):
    ended = run(*command(source, service), cut=["entry+", 5, "SIGKILL"])
    assert ended["code"] == -9, ended["said"]
    assert LOCK in service.names()
    assert not service.names("new/")  # what a run keeps is built in a folder of its own
    again = run(*command(source, service), cut=["entry", 3, "SIGTERM"])
    assert (again["code"], "goes on from there" in again["said"]) == (143, True)
    went_on = run(*command(source, service, "--json"))
    assert went_on["code"] == 0, went_on["said"]
    taken_up = re.search(r'"taken_up_bytes": (\d+)', went_on["said"])
    assert int(taken_up[1]) >= 3 * 4096
    check(service, tmp_path)


@pytest.mark.parametrize("is_elsewhere", [False, True], ids=["here", "elsewhere"])
@in_both_layouts
def test_what_was_copied_and_is_another_by_now_does_not_count(
    run, service, source, tmp_path, is_elsewhere
):
    """Blocks are held against their digests: nothing but its version tells of an object that was copied."""
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    if is_elsewhere:
        told = json.loads(service.content(LOCK)) | {"machine": "feedbeef"}
        service.put("bkt", LOCK, json.dumps(told).encode())
    copied = [n for n in service.names(".new") if "/d/" in n or n.endswith("opt_state.count/0")]
    source_names = {name.rpartition("/")[2] for name in service.names("ck/")}
    (name, *_) = [n for n in copied if n.rpartition("/")[2] in source_names]
    content = service.content(name)
    service.put("bkt", name, content[:-1] + bytes([content[-1] ^ 1]))
    again = run(*command(source, service, "--json", *["--stale"] * is_elsewhere))
    assert again["code"] == 0, again["said"]
    assert "is another than what was put there" in again["said"]
    check(service, tmp_path)


@pytest.mark.sampled(2)
@in_both_layouts
def test_killed_at_any_request_it_goes_on_to_the_same_bytes(
    run, service, source, tmp_path, pytestconfig
):
    """Also where blocks, or documents of arrays, have been sent of which the journal does not tell."""
    before = service.names()
    counted = run(*command(source, service), cut=["request+", 10**6, "SIGKILL"])["counted"]
    values = {name: service.content(name) for name in service.names("new/params")}
    step = 1 if pytestconfig.getoption("--every-combination") else 23
    for moment in range(step, counted, step):
        for name in set(service.names()) - set(before):
            service.remove(name)
        killed = run(*command(source, service), cut=["request+", moment, "SIGKILL"])
        assert killed["code"] == -9, killed["said"]
        again = run(*command(source, service))
        assert again["code"] == 0, (moment, again["said"])
        assert values == {name: service.content(name) for name in service.names("new/params")}
        check(service, tmp_path / str(moment))


@pytest.mark.sampled(2)
@pytest.mark.covers(2)
@pytest.mark.parametrize("when", ["request", "request+"])
@pytest.mark.parametrize("resume", [True, False], ids=["resume", "plain"])
def test_a_signal_while_something_is_written_leaves_nothing_or_what_is_named(
    run, service, source, tmp_path, resume, when, pytestconfig
):
    """The lock among it: whoever made it had gone before it was known to stand."""
    before = service.names()
    words = [word for word in command(source, service) if resume or word != "--resume"]
    for moment in range(1, 100 if pytestconfig.getoption("--every-combination") else 5):
        ended = run(*words, cut=[when, moment, "SIGTERM"])
        left = [name for name in service.names() if name not in before]
        if ended["code"] == 0 or f"new/{MARK}" in left:
            break
        assert ended["code"] == 143, ended["said"]
        assert resume or not left, ended["said"]
        assert ("nothing was left behind" in ended["said"]) is (not left), (left, ended["said"])
        if left:
            assert "goes on from there" in ended["said"]
            assert run("clean", f"{service.root}/new")["code"] == 0
        assert service.names() == before
    if f"new/{MARK}" not in service.names():
        assert run(*words)["code"] == 0
    check(service, tmp_path)


@pytest.mark.parametrize("service", ["gs"], indirect=True)
def test_what_was_kept_is_for_this_command_alone_and_goes_with_its_journal(run, service, source):
    before = service.names()
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    without = [word for word in command(source, service) if word != "--resume"]
    assert run(*without)["code"] == 2
    other = run(*command(source, service, by="3"))
    assert (other["code"], "is of another draft" in other["said"]) == (3, True)
    seen = run("clean", f"{service.root}/new", "--dry-run")["said"]
    assert "it keeps what is done, " in seen
    assert run("clean", f"{service.root}/new")["code"] == 0
    assert service.names() == before


@pytest.mark.parametrize("service", ["gs"], indirect=True)
def test_an_object_that_was_written_anew_is_another_source(run, service, source, tmp_path):
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    uploaded(service, tmp_path / "ck", source)
    ended = run(*command(source, service))
    assert (ended["code"], f"'{source}' (the source) has changed" in ended["said"]) == (3, True)
    assert run("clean", f"{service.root}/new")["code"] == 0
    assert run(*command(source, service))["code"] == 0
    check(service, tmp_path)


@pytest.mark.parametrize("service", ["gs"], indirect=True)
def test_only_one_run_goes_on(run, service, source, tmp_path):
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    left = json.loads(service.content(LOCK))
    living = json.dumps(left | msgspec.to_builtins(Owner.here())).encode()
    service.put("bkt", LOCK, living)
    assert run(*command(source, service, "--stale"))["code"] == 2
    service.put("bkt", LOCK, json.dumps(left | {"machine": "01234567"}).encode())
    assert run(*command(source, service))["code"] == 2
    assert run(*command(source, service, "--stale"))["code"] == 0
    repeated = run(*command(source, service, "--json"))
    assert (repeated["code"], '"is_repeated": true' in repeated["said"]) == (0, True)
    check(service, tmp_path)


@pytest.mark.check_all
def test_what_was_killed_between_its_lock_and_its_first_object_goes_on(
    run, service, source, tmp_path
):
    assert run(*command(source, service), cut=["entry", 1, "SIGKILL"])["code"] == -9
    assert [name for name in service.names() if not name.startswith("ck/")] == [LOCK]
    service.put("bkt", "new/of_others", b"x")  # which is not what that run has built
    assert run(*command(source, service))["code"] == 2
    assert service.content("new/of_others") == b"x"
    service.remove("new/of_others")
    left = json.loads(service.content(LOCK))
    service.put("bkt", LOCK, json.dumps(left | {"machine": "01234567"}).encode())
    assert run(*command(source, service))["code"] == 2
    seen = run(*command(source, service, "--stale", "--dry-run"))
    assert seen["code"] == 0
    assert run(*command(source, service, "--stale"))["code"] == 0
    check(service, tmp_path)


@pytest.mark.parametrize("service", ["gs"], indirect=True)
def test_what_a_killed_run_without_a_journal_has_left_goes(run, service, source, tmp_path):
    plain = [word for word in command(source, service) if word != "--resume"]
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    left = json.loads(service.content(LOCK))
    for name in service.names():
        if "-journal" in name:
            service.remove(name)
    left.pop("journal")
    service.put("bkt", LOCK, json.dumps(left).encode())
    ended = run(*plain)
    assert (ended["code"], "was left by a run that was killed" in ended["said"]) == (2, True)
    assert run(*plain, "--force")["code"] == 0
    check(service, tmp_path)


@pytest.mark.parametrize("service", ["gs"], indirect=True)
def test_a_preview_says_what_it_goes_on_from(run, service, source):
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    shown = [word for word in command(source, service, "--dry-run") if word != "--quiet"]
    seen = " ".join(run(*shown)["said"].split())
    assert f"goes on from '{service.root}/.new.surgery-tmp-" in seen
    assert "which keeps what is done, " in seen


@pytest.mark.parametrize("service", ["s3"], indirect=True)
def test_a_database_that_was_lost_is_said_and_made_anew(run, service, source, tmp_path):
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    manifest = next(name for name in service.names() if name.endswith("/new/manifest.ocdbt"))
    service.remove(manifest)
    went_on = run(*command(source, service, "--json"))
    assert went_on["code"] == 0, went_on["said"]
    assert f"something was lost: 's3://bkt/{manifest}' is gone" in went_on["said"]
    check(service, tmp_path)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", ["503", "reset", "lost", "cut"])
def test_faults_while_a_lock_is_taken_over_leave_it_with_one(service, kind):
    place = path_at(f"{service.root}/new")
    Lock(place, b"dead").take()
    service.faults = Faults(kind, every=3)
    first, second = Lock(place, b"first"), Lock(place, b"second")
    first.take_over(b"dead")
    with pytest.raises(FileExistsError):
        second.take_over(b"dead")
    assert first.is_held()
    first.release()
    service.faults = Faults()
    assert service.names() == []


def test_who_comes_second_gets_nothing(service):
    place = path_at(f"{service.root}/new")
    Lock(place, b"dead").take()
    first, second = Lock(place, b"first"), Lock(place, b"second")
    first.take_over(b"dead")
    with pytest.raises(FileExistsError):
        second.take_over(b"dead")
    assert first.is_held()


@pytest.mark.parametrize("service", ["gs"], indirect=True)
def test_a_replacement_that_was_cut_short_is_finished(run, service, source, tmp_path):
    """Whether it was killed before any mark, or while what is whole by then took the place."""
    assert run(*command(source, service))["code"] == 0
    edit = command(source, service, "--force", by="4")
    assert run(*edit, cut=["entry+", 2 + 7 + 1, "SIGKILL"])["code"] == -9  # before any mark
    built = [name for name in service.names() if "surgery-tmp" in name and "/new/" in name]
    for name in built[::2]:  # as if half of it had been replaced
        service.put("bkt", name.partition("/")[2], service.content(name))
    service.remove(f"new/{MARK}")
    service.put("bkt", f"{built[0].partition('/')[0]}/new/{MARK}", b"")
    again = run(*(word for word in edit if word != "--quiet"))
    assert again["code"] == 0
    assert "goes on from" in again["said"]
    assert "cannot be looked at" not in again["said"]  # it is its own, and whoever obeys removes it
    check(service, tmp_path, factor=4)


@pytest.mark.sampled(2)
def test_what_has_no_mark_yet_is_not_called_done(run, service, source):
    assert run(*command(source, service))["code"] == 0
    assert run(*command(source, service))["code"] == 0  # done already
    service.remove("new/commit_success.txt")

    again = run(*command(source, service))

    assert "already" not in again["said"]
    assert again["code"] != 0


def test_what_was_killed_when_all_but_its_lock_was_done_is_called_done(
    run, service, source, tmp_path, pytestconfig
):
    before = service.names()
    counted = run(*command(source, service), cut=["request+", 10**6, "SIGKILL"])["counted"]
    step = 1 if pytestconfig.getoption("--every-combination") else 9
    moments = range(counted - 1, 0, -step)
    for moment in moments:
        for name in set(service.names()) - set(before):
            service.remove(name)
        killed = run(*command(source, service), cut=["request+", moment, "SIGKILL"])
        assert killed["code"] == -9, killed["said"]
        if f"new/{MARK}" not in service.names():
            break
        assert LOCK in service.names()
        again = run(*command(source, service, "--json"))
        assert again["code"] == 0, (moment, again["said"])
        assert json.loads(again["said"])["is_repeated"]
        check(service, tmp_path / str(moment))
    assert moment < moments[0]  # there were such moments


@pytest.mark.sampled(2)
@in_both_layouts
def test_killed_as_it_cleans_up_after_what_was_done_it_is_called_done(
    run, service, source, tmp_path
):
    """Whoever removes what a run has left that was done takes its lock before: the mark is a copy of the older one."""
    before = service.names()
    counted = run(*command(source, service), cut=["request+", 10**6, "SIGKILL"])["counted"]
    for moment in itertools.count(1):
        for name in set(service.names()) - set(before):
            service.remove(name)
        killed = run(*command(source, service), cut=["request+", counted - 4, "SIGKILL"])
        assert killed["code"] == -9
        assert {f"new/{MARK}", LOCK} <= set(service.names())
        again = run(*command(source, service), cut=["request+", moment, "SIGKILL"])
        last = run(*command(source, service, "--json"))
        assert last["code"] == 0, last["said"]
        assert json.loads(last["said"])["is_repeated"]
        check(service, tmp_path / str(moment))
        if again["code"] == 0:
            break
    assert moment > 2


@pytest.mark.parametrize("resume", [True, False])
def test_what_only_its_lock_is_left_of_is_called_complete(run, service, source, tmp_path, resume):
    words = [word for word in command(source, service) if resume or word != "--resume"]
    before = service.names()
    counted = run(*words, cut=["request+", 10**6, "SIGKILL"])["counted"]
    for name in set(service.names()) - set(before):
        service.remove(name)
    assert run(*words, cut=["request", counted, "SIGKILL"])["code"] == -9
    assert LOCK in service.names()
    again = run(*[word for word in words if word != "--resume"])
    assert again["code"] == 2
    assert "it is complete" in again["said"]
    assert "killed" not in again["said"]
    assert run("clean", f"{service.root}/new")["code"] == 0
    check(service, tmp_path)


@pytest.mark.parametrize("service", ["gs"], indirect=True)
def test_what_somebody_else_has_finished_meanwhile_is_not_cleaned_away(
    run, service, source, tmp_path
):
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    uploaded(service, saved(tmp_path / "other", TREE), f"{service.root}/new")
    before = service.names("new/")
    assert f"new/{MARK}" in before
    assert run("clean", f"{service.root}/new")["code"] == 0
    assert service.names("new/") == before
    assert not [name for name in service.names() if "surgery-tmp" in name]


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("state", ["dead", "living", "elsewhere"])
def test_a_preview_is_refused_where_the_run_would_be(run, service, source, tmp_path, state, force):
    """It ended well beside a lock that its own command does not get past."""
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    if state != "dead":
        left = json.loads(service.content(LOCK))
        own = msgspec.to_builtins(Owner.here())
        other = {"machine": "01234567"} if state == "elsewhere" else own
        service.put("bkt", LOCK, json.dumps(left | other).encode())
    plain = [word for word in command(source, service, *force) if word != "--resume"]
    plan = tmp_path / "plan.yaml"
    plan.write_text("edits: [{op: rescale, at: params, by: 2, optimizer: keep}]\n")
    ended = run(*plain)
    assert ended["code"] == 2
    for words in ([*plain, "--dry-run"], ["plan", source, plan, "--to", plain[2], *force]):
        seen = run(*words)
        assert (seen["code"], seen["said"]) == (2, ended["said"]), words


def test_on_another_machine_what_goes_on_is_named_as_it_is_taken(run, service, source, tmp_path):
    """The command that was named was refused there: nothing tells that the run is over but its user."""
    assert run(*command(source, service), cut=["entry+", 5, "SIGKILL"])["code"] == -9
    left = json.loads(service.content(LOCK))
    service.put("bkt", LOCK, json.dumps(left | {"machine": "01234567"}).encode())
    said = " ".join(run("clean", f"{service.root}/new", "--dry-run")["said"].split())
    (named,) = re.findall(r"`surgery ([^`]*)` with `--stale` goes on from there", said)
    assert shlex.split(named) == list(map(str, command(source, service)))
    assert run(*command(source, service))["code"] == 2
    assert run(*shlex.split(named), "--stale")["code"] == 0
    check(service, tmp_path)
