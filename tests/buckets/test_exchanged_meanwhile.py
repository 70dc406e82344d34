"""`--force` in a bucket puts object by object in its place: what else comes there meanwhile, and what a kill leaves."""

import urllib.parse

import numpy as np
import pytest

from surgery_cli import surgery as use_cases
from surgery_cli.errors import SurgeryError
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.names import names_of_record
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import MARK, RESCALED, TREE, below, saved, uploaded
from tests.buckets.server import Faults
from tests.store.cutting import Runs

WAYS = {
    "force": Options(force=True),
    "resume": Options(force=True, resume=True),
}
EXTRA = {"extra": np.ones(4, np.float32)}
OLD = {"params": {name: TREE["params"][name] * 5 for name in TREE["params"]} | EXTRA}
THEIRS = {"params": {name: TREE["params"][name] * 7 for name in TREE["params"]}}
LOCK = ".new.surgery-tmp-lock"


@pytest.fixture
def source(service, tmp_path):
    uploaded(service, saved(tmp_path / "old", OLD, use_ocdbt=False), f"{service.root}/new")
    there = saved(tmp_path / "ck", use_ocdbt=False)
    return uploaded(service, there, f"{service.root}/ck")


def at_first_deletion(service, deed):
    """Do it as the first object of the old one is about to go."""
    seen = []

    def before(request):
        path = urllib.parse.unquote(request.path)
        if not seen and service.kind_of(request) == "delete" and "/new/" in path:
            seen.append(path)
            deed()

    service.before = before
    return seen


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", ["an object of that name", "another object", "a whole save"])
def test_nothing_is_overwritten_that_comes_while_objects_are_exchanged(
    service, source, tmp_path, what, way
):
    """Objects of a later save were replaced like those of the old one, and its own mark said that all was whole."""
    theirs = {}

    def come():
        if what == "a whole save":
            for name in service.names("new/"):
                service.remove(name)
            service.upload(
                saved(tmp_path / "theirs", THEIRS, use_ocdbt=False), f"{service.root}/new"
            )
            service.put("bkt", f"new/{MARK}", b"theirs")
            theirs.update(below(service))
            return
        folder = "new/params.w/" if what == "an object of that name" else "new/params.extra/"
        name = service.names(folder)[0]
        service.put("bkt", name, b"of something else")
        theirs[name] = b"of something else"

    seen = at_first_deletion(service, come)
    with pytest.raises(SurgeryError) as refused:
        use_cases.apply(source, f"{service.root}/new", RESCALED, options=WAYS[way])
    assert seen
    problem = refused.value.problems[0]
    assert "was written to by something else" in f"{problem.what} {problem.why}"
    there = below(service)
    assert {name: there.get(name) for name in theirs} == theirs
    has_mark = f"new/{MARK}" in there
    assert has_mark == (what == "a whole save")
    if has_mark:  # nothing of the run had come there
        assert there == theirs
        assert refused.value.exit_code == 2
        if way == "force":
            assert not service.names(".new")
    else:
        assert any("surgery-tmp" in name for name in service.names(".new")), "the only whole one"
        assert "nothing was left behind" not in str(refused.value)
        if way == "force" and what == "an object of that name":
            assert "`clean` leaves all as it is" in problem.fix


@pytest.mark.parametrize("way", WAYS)
def test_what_is_removed_while_objects_are_exchanged_is_said_to_be(service, source, way):
    """Who removes one may be about to save another: none is put in its place."""
    name = "new/params.w/.zarray"
    seen = at_first_deletion(service, lambda: service.remove(name))
    with pytest.raises(SurgeryError) as refused:
        use_cases.apply(source, f"{service.root}/new", RESCALED, options=WAYS[way])
    assert seen
    assert f"'{service.root}/{name}' was removed" in refused.value.problems[0].why
    assert name not in service.names()


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_that_is_lost_is_no_other_program(service, source, way):
    """The second try hears that there is nothing to delete: that was taken for something that had been removed."""
    service.faults = Faults(kind="lost", every=2, among=lambda kind: kind == "delete")
    use_cases.apply(source, f"{service.root}/new", RESCALED, options=WAYS[way])
    service.faults = Faults()
    service.settle()
    assert not service.names(".new")
    filesystem.forget(service.root)
    read = open_checkpoint(f"{service.root}/new").read(LeafPath(("params", "w")))
    np.testing.assert_array_equal(read, TREE["params"]["w"] * np.float32(2))


@pytest.mark.parametrize("ours", [True, False])
def test_a_run_that_fails_removes_what_it_has_made_and_nothing_else(service, tmp_path, ours):
    """Into nothing, it builds at its destination itself: a save that came there went with what it had made."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    foreign = "new/theirs/0" if not ours else "new/_METADATA"

    def come(request):
        if service.kind_of(request) == "write" and f"new/{'manifest'}" in _name_of(request):
            service.put("bkt", foreign, b"theirs")

    service.before = come
    with pytest.raises(SurgeryError) as refused:
        use_cases.apply(there, f"{service.root}/new", RESCALED)
    assert "could not be removed" not in str(refused.value)
    service.before = lambda _: None
    assert below(service) == {foreign: b"theirs"}
    assert LOCK not in service.names()


@pytest.mark.parametrize("force", [True, False])
def test_a_record_beside_a_folder_is_nobody_s_that_the_run_knows(service, source, force):
    """Each run was refused for it, after all the work; and with `--force` it went."""
    beside = {name: b"theirs" for each in ("new", "other") for name in names_of_record(each)}
    for name, content in beside.items():
        service.put("bkt", name, content)
    target = f"{service.root}/{'new' if force else 'other'}"
    use_cases.apply(source, target, RESCALED, options=Options(force=force))
    assert {name: service.content(name) for name in beside} == beside


def _name_of(request):
    return urllib.parse.unquote(f"{request.path} {request.query}")


@pytest.fixture
def here():
    with Runs("gcsfs", "s3fs") as runs:
        yield runs


def others(service):
    service.settle()
    return {n: service.content(n) for n in service.names() if not n.startswith("ck")}


def without_records(found):
    """A record says when it was made."""
    return {name: "" if name.endswith(".json") else content for name, content in found.items()}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("then", ["clean", "force"])
@pytest.mark.parametrize("form", ["msgpack", "safetensors", "npz"])
def test_a_single_file_is_finished_or_as_it_was_wherever_a_kill_comes(
    service, here, tmp_path, form, then
):
    """It has no mark: what was all in its place was called half replaced for good, and so was what was untouched."""
    root = service.root
    one = uploaded(service, saved(tmp_path / "one", use_ocdbt=False), f"{root}/ck")
    two = uploaded(service, saved(tmp_path / "two", OLD, use_ocdbt=False), f"{root}/ck2")
    new = f"{root}/new.{form}"
    first = here("export", two, new, "--to", form)
    assert first["code"] == 0, first["said"]
    old, words = others(service), ("export", one, new, "--to", form, "--force")
    total = here(*words, cut=["request+", 10**6, "SIGKILL"])["counted"]
    whole = without_records(others(service))
    for moment in range(1, total):
        for name in others(service):
            service.remove(name)
        for name, content in old.items():
            service.put("bkt", name, content)
        assert here(*words, cut=["request+", moment, "SIGKILL"])["code"] == -9
        service.settle()
        ended = here("clean", new) if then == "clean" else here(*words)
        if then == "force" and "is half replaced" in ended["said"]:
            ended = here("clean", new)
        assert ended["code"] == 0, (moment, ended["said"])
        found = without_records(others(service))
        assert found in ((whole, without_records(old)) if then == "clean" else (whole,)), moment
