"""What happens while a run writes its record, the last but one of its requests: which may be tried for a minute."""

from functools import partial

import pytest

from surgery_cli import surgery
from surgery_cli.errors import SurgeryError
from surgery_cli.planning import plan_of
from surgery_cli.settings.export import Export
from surgery_cli.store.filesystem.names import name_of_record
from tests.buckets.checkpoints import RESCALED, saved, uploaded

FILE = "runs/new.msgpack"
LOCK = "runs/.new.msgpack.surgery-tmp-lock"


def remove(service, gone):
    """Everything of the result, or what has this in its name."""
    for name in service.names("new/") + service.names(".new.surgery-tmp-"):
        if gone in name and "/new/" in f"/{name}":
            service.remove(name)


def before_the_record(service, monkeypatch, what):
    """Let ``what`` happen when the record is on its way."""
    answer, seen = service.answer, []

    async def answered(request):
        asked = f"{request.path} {request.query.get('name', '')}"
        if not seen and service.kind_of(request) == "write" and "surgery.json" in asked:
            seen.append(asked)
            what()
        return await answer(request)

    monkeypatch.setattr(service, "answer", answered)
    return seen


@pytest.mark.parametrize("gone", ["_METADATA", "manifest.ocdbt", "/d/", ""])
def test_nothing_is_whole_of_which_something_was_removed(service, monkeypatch, tmp_path, gone):
    """To others it is an unfinished save until its mark is there, and somebody may remove those."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    seen = before_the_record(service, monkeypatch, partial(remove, service, gone))
    with pytest.raises(SurgeryError, match=r"was removed (while|before)"):
        surgery.apply(there, f"{service.root}/new", RESCALED)
    assert seen
    assert not [name for name in service.names() if "new" in name]


@pytest.mark.parametrize("gone", ["_METADATA", "/d/"])
def test_nor_of_what_was_rescued(service, monkeypatch, tmp_path, gone):
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/ck")
    service.remove("ck/_METADATA")
    theirs = ".new.surgery.json"  # beside nothing, it is no record of what is written
    service.put("bkt", theirs, b"theirs")
    seen = before_the_record(service, monkeypatch, partial(remove, service, gone))
    with pytest.raises(SurgeryError, match=r"was removed (while|before)"):
        surgery.rescue(there, f"{service.root}/new", allow_partial=True)
    assert seen
    assert [name for name in service.names() if "new" in name] == [theirs]


@pytest.mark.parametrize("other", ["", "finished"])
def test_a_single_file_is_not_done_that_is_another_runs_by_now(
    service, monkeypatch, tmp_path, other
):
    """It has no mark, which only who has the lock can make: the last look at the lock comes after the record."""
    there = uploaded(service, saved(tmp_path / "ck"), f"{service.root}/runs/ck")

    def take_over():
        service.remove(FILE)
        service.remove(LOCK)
        if other:
            service.put("bkt", FILE, b"another")

    seen = before_the_record(service, monkeypatch, take_over)
    with pytest.raises(SurgeryError, match="was taken over by another run, or cleaned") as raised:
        surgery.apply(there, f"{service.root}/{FILE}", plan_of([], output=Export(format="msgpack")))
    assert seen
    assert f"{LOCK}' is gone" in raised.value.problems[0].why
    assert "may be of this run: `surgery inspect" in raised.value.problems[0].fix
    left = {name for name in service.names() if "new" in name}
    if service.scheme == "s3":  # no version tells there whose it is
        left.discard(f"runs/{name_of_record('new.msgpack')}")
    assert left == ({FILE} if other else set())
