"""From some request on the service refuses everything, cleaning up among it: what is left is named, and how it goes."""

import itertools
import json

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


def end_its_run(service):
    """What stands there is of a process that is over."""
    if LOCK in service.names():
        told = json.loads(service.content(LOCK)) | {"pid": 2**22 - 1, "started": "1"}
        service.put("bkt", LOCK, json.dumps(told).encode())


@pytest.mark.parametrize("every", [11, ENDS])
@pytest.mark.parametrize("how", [{}, {"use_ocdbt": False}], ids=["ocdbt", "per-leaf"])
@pytest.mark.parametrize("options", [(), ("--resume",), ("--seal",)], ids=" ".join)
@pytest.mark.covers(2)
def test_what_is_left_is_named_with_what_removes_it(
    service, source, surgery, monkeypatch, how, options, every
):
    new = f"{service.root}/new"
    words = ("rescale", source, new, "params/w", "--by", "2", "--optimizer", "keep", *options)
    before = service.names()
    for number in itertools.count(every, every):
        with monkeypatch.context() as patched:
            refusing_after(service, number, patched)
            run = surgery(*words)
        left = [name for name in service.names() if name not in before]
        said = f"{run.out}{run.err}"
        if LOCK in left:
            assert f"surgery clean {new}" in said, (number, said)
        elif run.code:
            assert not left, (number, said)
        assert run.code in (0, 3, 4), (number, said)
        end_its_run(service)
        assert surgery("clean", new).code == 0
        if run.code == 0:
            values = open_checkpoint(new).read(LeafPath(("params", "w")))
            np.testing.assert_array_equal(values, TREE["params"]["w"] * 2)
            assert not [name for name in service.names() if "surgery-tmp" in name], number
            return
        assert service.names() == before, number
