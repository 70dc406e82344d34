"""Where `--force` in a bucket cannot go on, what stands is what is said, and what `clean` and the same command do."""

import itertools
import re
import urllib.parse

import numpy as np
import pytest

from surgery_cli import surgery as use_cases
from surgery_cli.errors import SurgeryError
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import MARK, RESCALED, TREE, below, saved, uploaded
from tests.buckets.test_refused_for_good import LOCK, end_its_run

OLD = {"params": {name: TREE["params"][name] * 5 for name in TREE["params"]}}
BUILT = ".new.surgery-tmp-"
COPIES = 9
"""Objects of the new checkpoint but for its mark."""
WAYS = {"force": Options(force=True), "resume": Options(force=True, resume=True)}


@pytest.fixture
def source(service, tmp_path):
    uploaded(service, saved(tmp_path / "old", OLD, use_ocdbt=False), f"{service.root}/new")
    there = saved(tmp_path / "ck", use_ocdbt=False)
    return uploaded(service, there, f"{service.root}/ck")


def target_of(service, request):
    """The object that a request makes, or deletes."""
    path = urllib.parse.unquote(request.path).rpartition("/rewriteTo/")[2]
    return f"{path} {request.query.get('name', '')}" if service.kind_of(request) else ""


def removing_the_old_one(service, request):
    """As its owner does once the run builds."""
    if service.kind_of(request) in ("write", "copy") and BUILT in target_of(service, request):
        for name in service.names("new/"):
            service.remove(name)
        return True
    return False


def cut(service, patch, number, end, *, removes=False):
    """From the ``number``-th copy to the destination on: all are ``refused``, or there is something of others'."""
    answer, copied, gone, foreign = service.answer, [], [not removes], {}

    def before(request):
        if not gone[0]:
            gone[0] = removing_the_old_one(service, request)
        target = target_of(service, request)
        if service.kind_of(request) == "copy" and re.search(r"(/o/|bkt/)new/", target):
            copied.append(request)
            if end == "theirs" and len(copied) > number and not foreign:
                name = target[target.index("new/") :].strip()
                if name not in service.names():
                    foreign[name] = b"theirs"
                    service.put("bkt", name, b"theirs")

    async def answered(request):
        if end == "refused" and request in copied[number:]:
            return service.refusal(403, "no")
        return await answer(request)

    patch.setattr(service, "before", before)
    patch.setattr(service, "answer", answered)
    return foreign


def check_new(service):
    filesystem.forget(service.root)
    read = open_checkpoint(f"{service.root}/new").read(LeafPath(("params", "w")))
    np.testing.assert_array_equal(read, TREE["params"]["w"] * np.float32(2))
    assert not service.names(".new")


@pytest.mark.parametrize("number", [0, 1, COPIES - 1])
@pytest.mark.parametrize("end", ["refused", "theirs"])
@pytest.mark.parametrize("way", WAYS)
def test_where_the_old_one_was_removed_meanwhile_no_part_of_the_new_one_stays(
    service, source, surgery, monkeypatch, way, end, number
):
    """It stayed, without its mark, as what was to be replaced had once stood there; the whole one beside it went."""
    new = f"{service.root}/new"
    with monkeypatch.context() as patch:
        theirs = cut(service, patch, number, end, removes=True)
        with pytest.raises(SurgeryError) as refused:
            use_cases.apply(source, new, RESCALED, options=WAYS[way])
    said = str(refused.value)
    assert bool(theirs) == (end == "theirs")
    if way == "force":
        assert "nothing was left behind" in said
        assert below(service) == theirs
        assert not service.names(".new")
        return
    assert f"goes on from there{' once what else was written' * bool(theirs)}" in said, said
    assert ("`surgery clean" in said) == (below(service) == {}), said
    end_its_run(service, LOCK)
    if theirs:
        with pytest.raises(SurgeryError) as still:
            use_cases.apply(source, new, RESCALED, options=WAYS[way])
        assert f"goes on from there once what else was written to '{new}' is gone" in str(
            still.value
        )
        end_its_run(service, LOCK)
        for name in theirs:
            service.remove(name)
    use_cases.apply(source, new, RESCALED, options=WAYS[way])
    check_new(service)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("has_mark", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_clean_does_what_is_said_that_it_does(
    service, source, surgery, monkeypatch, way, has_mark, number
):
    """On `s3://` nobody but this program leaves marks: it was to put the new one in its place, and removed it."""
    new = f"{service.root}/new"
    if not has_mark:
        if service.scheme == "gs":  # there it is no checkpoint
            return
        service.remove(f"new/{MARK}")
    old = below(service)
    with monkeypatch.context() as patch:
        cut(service, patch, number, "refused")
        with pytest.raises(SurgeryError) as refused:
            use_cases.apply(source, new, RESCALED, options=WAYS[way])
    said, stood = str(refused.value), below(service)
    assert (stood == old) == (not has_mark and number == 0)
    end_its_run(service, LOCK)
    if stood == old:
        assert f"'{new}' could not be replaced, and stands as it was" in said
        assert (
            ("nothing was left behind" in said) == (way == "force") == (not service.names(".new"))
        )
    elif way == "force":
        assert f"`surgery clean {new}` puts the new one in its place" in said
    removes = "removes it" in said or "nothing was left behind" in said
    assert surgery("clean", new).code == 0
    assert not service.names(".new")
    if removes:
        assert below(service) == old
    else:
        check_new(service)


def test_wherever_it_ends_once_the_old_one_was_removed_there_is_a_way_on(
    service, source, surgery, monkeypatch
):
    """Between its mark and the inventory, `clean` called it half replaced, and so did the command that it named."""
    first = {name: service.content(name) for name in service.names()}
    new, answer = f"{service.root}/new", service.answer
    words = ("rescale", source, new, "params/w", "--by", "2", "--optimizer", "keep", "--force")
    for number in itertools.count(2):
        changed, gone = [], [False]

        def before(request, changed=changed, gone=gone):
            gone[0] = gone[0] or removing_the_old_one(service, request)
            if service.kind_of(request) in ("write", "copy", "delete"):
                changed.append(request)

        async def answered(request, changed=changed, number=number):
            if request in changed[number:]:  # as if it had been killed
                return service.refusal(403, "no")
            return await answer(request)

        with monkeypatch.context() as patch:
            patch.setattr(service, "before", before)
            patch.setattr(service, "answer", answered)
            ended = surgery(*words)
        end_its_run(service, LOCK)
        cleaned = surgery("clean", new)
        assert cleaned.code == 0, (number, cleaned.out, cleaned.err)
        if ended.code == 0:
            break
        assert not service.names(".new"), number
        assert not service.names("new/") or f"new/{MARK}" in service.names(), number
        for name in service.names():
            service.remove(name)
        for name, content in first.items():
            service.put("bkt", name, content)
    check_new(service)
    assert number > 2 * COPIES
