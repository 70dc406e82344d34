"""What something else puts to a destination in a bucket while a run is under way stays, whenever it comes, and whatever
its name is.
"""

from itertools import cycle

import numpy as np
import pytest

from surgery_cli.inputs.buckets import ServiceRefusal, path_at
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.bucket_locks import guarded
from tests.buckets.checkpoints import MARK, TREE, saved, uploaded
from tests.buckets.server import Faults

LARGE = {"params": {"w": np.arange(9 << 18, dtype=np.float32)}, "opt_state": {"count": 3}}
"""Its file is sent piece by piece."""

EDIT = ("params/w", "--by", "2", "--optimizer", "keep")
WORKS = {
    "one leaf of a database": ("rescale", TREE, True, EDIT),
    "one leaf of files": ("rescale", TREE, False, EDIT),
    "names": ("rename", TREE, True, ("--move", "params/w=params/v")),
    "a file": ("export", TREE, True, ("--to", "msgpack")),
    "a file in pieces": ("export", LARGE, True, ("--to", "msgpack")),
    "a rescue": ("rescue", TREE, False, ()),
    "with a seal": ("rescale", TREE, True, (*EDIT, "--seal")),
}
INSIDE = (
    "d/0theirs",
    "surgery.json",
    "ocdbt.process_0/d/0theirs",
    "_METADATA",
    MARK,
    "0theirs",
    "params.w/0",
    "manifest.ocdbt",
)
THEIRS = b"theirs"
LOCK = ".new.surgery-tmp-lock"
MOMENTS = 12


@pytest.fixture
def run(service, surgery, tmp_path):
    """Runs the command, and does a deed before the request that was sent so many after the lock was made."""

    def prepared(work):
        command, tree, use_ocdbt, options = WORKS[work]
        source = uploaded(
            service, saved(tmp_path / "ck", tree, use_ocdbt=use_ocdbt), f"{service.root}/ck"
        )

        def run(moment=0, deed=lambda: None):
            service.settle()
            for name in service.names("new") + service.names(".new"):
                service.remove(name)
            seen = []

            def before(request):
                if seen or LOCK in service.names():
                    seen.append(request.kind)
                    if len(seen) == moment:
                        deed()

            service.before = before
            done = surgery(command, source, f"{service.root}/new", *options)
            service.settle()
            service.before = lambda _: None
            return done, seen

        return run

    return prepared


def moments(count):
    return sorted({1 + index * (count - 1) // (MOMENTS - 1) for index in range(MOMENTS)})


@pytest.mark.parametrize("work", WORKS)
def test_what_comes_meanwhile_stays(service, run, work):
    """It was deleted as a data file that nothing refers to, replaced as if this run had made it, or went with what a
    failed run had made.
    """
    at, is_file = run(work), work.startswith("a file")
    done, seen = at()
    assert not done.code, done.err
    names = cycle(
        ["new", ".new.surgery.json", "new.surgery.json"]
        if is_file
        else [f"new/{name}" for name in INSIDE]
    )
    for moment, name in zip(moments(len(seen)), names, strict=False):
        came = []

        def come(name=name, came=came):
            came.append(name)
            service.put("bkt", name, THEIRS)

        done, _ = at(moment, come)
        if not came:  # how many requests it takes varies: what is asked ahead may come before the lock, or after
            continue
        said = f"{name} at {moment} of {len(seen)}: {done.code} {done.out} {done.err}"
        assert service.content(name) == THEIRS, said
        assert LOCK not in service.names(), said
        if done.code:
            assert service.names("new") + service.names(".new") == [name], said
            assert "nothing was left behind" in done.err or "' exists" in done.err, said


@pytest.mark.parametrize("work", WORKS)
def test_an_answer_that_is_lost_is_no_other_program(service, run, work):
    """The client asks again, and hears that something stands there: its own."""
    at = run(work)
    _, seen = at()
    makes = [n for n, kind in enumerate(seen) if kind in ("write", "copy")]
    for moment in makes[:: max(1, len(makes) // 4)]:
        lost = iter(["write", "copy"])

        def lose(lost=lost):
            is_next = lambda kind: kind in ("write", "copy") and next(lost, None) is not None  # noqa: E731
            service.faults = Faults(kind="lost", every=2, among=is_next)

        done, _ = at(moment, lose)
        service.faults = Faults()
        assert not done.code, (moment, done.err)


@pytest.mark.parametrize("is_copied", [False, True], ids=["put", "copied"])
@pytest.mark.parametrize("in_place", [False, True], ids=["anew", "in its place"])
def test_of_what_no_answer_came_its_content_tells_whose_it_is(service, in_place, is_copied):
    folder = path_at(f"{service.root}/new")
    place, other = folder / "some", path_at(f"{service.root}/other")
    service.put("bkt", "other", b"of the run")
    answers = iter(["lost", "403"])

    def among(_):
        service.faults.kind = next(answers, "403")
        return True

    with guarded(folder, lambda: None) as guard:
        if in_place:
            filesystem.put(place, b"before")
        filesystem.exists(other)
        service.faults = Faults(kind="lost", every=1, among=among)
        with pytest.raises(ServiceRefusal):
            filesystem.copy(other, place) if is_copied else filesystem.put(place, b"of the run")
        service.faults = Faults()
        filesystem.forget(folder)
        assert service.content("new/some") == b"of the run"
        assert guard.may_have_made(place)
        service.put("bkt", "new/some", THEIRS)
        filesystem.forget(folder)
        assert not guard.may_have_made(place)
