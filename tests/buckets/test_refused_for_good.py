"""From some request on the service refuses everything, cleaning up among it: what is left is named, and how it goes."""

import itertools
import json
import re

import numpy as np
import pytest

from surgery_cli.store.open.checkpoint import open_checkpoint
from surgery_cli.tree.paths import LeafPath
from tests.buckets.checkpoints import TREE, saved, uploaded

LOCK = ".new.surgery-tmp-lock"
ENDS = pytest.param(1, marks=pytest.mark.check_all)
"""After each request, not after every so manieth."""


@pytest.fixture
def source(service, tmp_path, how):
    return uploaded(service, saved(tmp_path / "ck", **how), f"{service.root}/ck")


def refusing_after(service, number, monkeypatch):
    """So many requests are answered, and no more."""
    answered, answer = itertools.count(), service.answer

    async def refused(request):
        return service.refusal(403, "no") if next(answered) >= number else await answer(request)

    monkeypatch.setattr(service, "answer", refused)


def end_its_run(service, lock=LOCK):
    """What stands there is of a process that is over."""
    if lock in service.names():
        told = json.loads(service.content(lock)) | {"pid": 2**22 - 1, "started": "1"}
        service.put("bkt", lock, json.dumps(told).encode())


def check_values(address, factor):
    values = open_checkpoint(address).read(LeafPath(("params", "w")))
    np.testing.assert_array_equal(values, TREE["params"]["w"] * factor)


def edit(source, new, *options, by="2"):
    return ("rescale", source, new, "params/w", "--by", by, "--optimizer", "keep", *options)


@pytest.mark.parametrize("every", [11, ENDS])
@pytest.mark.parametrize("how", [{}, {"use_ocdbt": False}], ids=["ocdbt", "per-leaf"])
@pytest.mark.parametrize("options", [(), ("--resume",), ("--seal",)], ids=" ".join)
@pytest.mark.covers(2)
def test_what_is_left_is_named_with_what_removes_it(
    service, source, surgery, monkeypatch, how, options, every
):
    new = f"{service.root}/new"
    before = service.names()
    for number in itertools.count(every, every):
        with monkeypatch.context() as patched:
            refusing_after(service, number, patched)
            run = surgery(*edit(source, new, *options))
        left = [name for name in service.names() if name not in before]
        said = f"{run.out}{run.err}"
        assert "surgery rescue" not in said, (number, said)  # the source is as it was
        if LOCK in left:
            assert f"surgery clean {new}" in said, (number, said)
            assert LOCK in said or "goes on from there" in said, (number, said)
        elif run.code:
            assert not left, (number, said)
        assert run.code in (0, 3, 4), (number, said)
        end_its_run(service)
        assert surgery("clean", new).code == 0
        if run.code == 0:
            check_values(new, 2)
            assert not [name for name in service.names() if "surgery-tmp" in name], number
            return
        assert service.names() == before, number


@pytest.mark.parametrize("every", [7, ENDS])
@pytest.mark.parametrize("how", [{}])
def test_of_the_old_and_the_new_one_stands_whole_and_is_named(
    service, source, surgery, monkeypatch, how, every
):
    new, saved_one = f"{service.root}/new", f"{service.root}/saved"
    assert surgery(*edit(source, new, by="3")).code == 0
    before = {name: service.content(name) for name in service.names()}
    for number in itertools.count(every, every):
        with monkeypatch.context() as patched:
            refusing_after(service, number, patched)
            run = surgery(*edit(source, new, "--force"))
        said = f"{run.out}{run.err}"
        end_its_run(service)
        if run.code == 0:
            assert surgery("clean", new).code == 0
            check_values(new, 2)
            return
        assert run.code in (2, 3, 4), (number, said)
        if whole := re.search(r"`surgery rescue (\S+) NEW`", said):
            assert "could not be replaced whole" in said, said
            assert f"`surgery clean {new}` puts the new one in its place" in said, said
            assert surgery("rescue", whole[1], saved_one).code == 0
            check_values(saved_one, 2)
            cleaned = surgery("clean", new)
            assert cleaned.code == 0
            is_old = "removed" in cleaned.out
            assert not is_old or "or removes it where what stands there is whole" in said, said
            check_values(new, 3 if is_old else 2)
            assert not [name for name in service.names() if "surgery-tmp" in name], number
        else:
            assert surgery("clean", new).code == 0
            check_values(new, 3)
            assert service.names() == sorted(before), number
        for name in set(service.names()) - set(before):
            service.remove(name)
        for name, content in before.items():
            service.put("bkt", name, content)
