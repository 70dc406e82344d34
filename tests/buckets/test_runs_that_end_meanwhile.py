"""Whoever meets a run that ends in that moment reads what it has made, or is told so: nothing is called damaged."""

import itertools
import json
import subprocess
import sys
from contextlib import ExitStack

import msgspec
import pytest

from surgery_cli.store.filesystem.processes import Owner
from surgery_cli.store.open.checkpoint import open_checkpoint
from tests.buckets.checkpoints import MARK, saved, uploaded

LOCK = "run/.new.surgery-tmp-lock"
EDIT = ["rescale", "SRC", "NEW", "params/w", "--by", "2"]
COMMANDS = {
    "clean": ["clean", "NEW"],
    "clean all": ["clean", "RUN"],
    "clean stale": ["clean", "NEW", "--stale"],
    "edit": EDIT,
    "force": [*EDIT, "--force"],
    "preview": [*EDIT, "--force", "--dry-run"],
    "resume": [*EDIT, "--force", "--resume", "--stale"],
    "inspect": ["inspect", "NEW"],
    "doctor": ["doctor", "NEW"],
    "doctor all": ["doctor", "RUN"],
    "rescue": ["rescue", "NEW"],
    "verify": ["verify", "NEW"],
    "edit of it": ["rescale", "NEW", "OUT", "params/w", "--by", "2"],
}
LOOKS = 12
"""Requests by which every command has looked for the run; what comes after is of the command itself."""
AT_WORK = "another run is writing to"
TRUE = (
    AT_WORK,
    "changed while it was read",
    "the destination 'ROOT/run/new' exists",
    "'ROOT/run/new' was written to by something else while this run was under way",
)


class Run:
    """A run to `new` that is about to end, of this machine or another; ``begun``: what it writes is not marked yet.

    ``process``: whose it is, and ends with it.
    """

    process = None

    def __init__(self, service, folder, *, elsewhere, begun):
        self.service, self.folder, self.begun = service, folder, begun
        said = {"run": "x", **msgspec.to_builtins(Owner.here())}
        said |= {"machine": "feedbeef"} if elsewhere else {}
        said |= {
            "builds": f"{service.root}/run/" + ("new" if begun else ".new.surgery-tmp-0123abcd")
        }
        said |= {"replaces": False} if begun else {"marked": True}
        self.said = said
        uploaded(service, folder, f"{service.root}/run/new")
        self.before = service.names()

    @property
    def lock(self):
        own = {} if self.process is None else {"pid": self.process.pid, "started": ""}
        return json.dumps(self.said | own).encode()

    def starts(self):
        for name in set(self.service.names()) - set(self.before):
            self.service.remove(name)
        uploaded(self.service, self.folder, f"{self.service.root}/run/new")
        if self.begun:
            self.service.remove(f"run/new/{MARK}")
        self.service.put("bkt", LOCK, self.lock)

    def ends(self):
        if LOCK in self.service.names() and self.service.content(LOCK) == self.lock:
            if self.begun:
                self.service.put("bkt", f"run/new/{MARK}", self.lock)
            self.service.remove(LOCK)
            if self.process is not None:
                self.process.kill()
                self.process.wait()

    def ends_at(self, moment, monkeypatch):
        """It ends before this request is answered, with its process just after; gives whether there was one."""
        count, reached, answer = itertools.count(1), [], self.service.answer

        def ends(_=None):
            if next(count) == moment:
                reached.append(moment)
                self.ends()

        async def answered(request):
            found = await answer(request)
            ends()
            return found

        if self.process is None:
            self.service.before = ends
        else:
            monkeypatch.setattr(self.service, "answer", answered)
        return reached


@pytest.fixture
def process():
    """Starts one that does nothing."""
    with ExitStack() as stack:

        def started():
            words = [sys.executable, "-c", "import time; time.sleep(600)"]
            one = stack.enter_context(subprocess.Popen(words))
            stack.callback(one.kill)
            return one

        yield started


@pytest.mark.covers(1)
@pytest.mark.parametrize("begun", [True, False], ids=["writes", "replaces"])
@pytest.mark.parametrize("where", ["elsewhere", "here", "here, of a process of its own"])
@pytest.mark.parametrize("name", COMMANDS)
def test_at_each_request(service, tmp_path, surgery, process, monkeypatch, name, where, begun):
    elsewhere = where == "elsewhere"
    run = Run(service, saved(tmp_path / "ck"), elsewhere=elsewhere, begun=begun)
    for moment in range(1, LOOKS + 1):
        run.process = process() if where.endswith("own") else None
        run.starts()
        place = f"{service.root}/run"
        names = {"SRC": str(tmp_path / "ck"), "NEW": f"{place}/new", "RUN": place}
        names["OUT"] = str(tmp_path / f"out{moment}")
        words = [names.get(word, word) for word in COMMANDS[name]]
        with monkeypatch.context() as patched:
            reached = run.ends_at(moment, patched)
            result = surgery(*words)
        service.before = lambda request: None
        if not reached:
            break
        assert result.code in (0, 1, 2, 3), (moment, result.err)
        if result.err.startswith("error"):
            told = [text.replace("ROOT", service.root) for text in TRUE]
            assert any(text in result.err for text in told), (moment, result.err)
            assert ".surgery-tmp-lock' changed" not in result.err
            assert "removed its lock" not in result.err
            is_over = AT_WORK not in result.err and "exists" not in result.err
            assert ("run the command again" in result.err) == is_over
        if "keeps what is done" in result.err:  # a run with `--resume`, of this very process
            for kept in service.names("run/.new.surgery-tmp-"):
                service.remove(kept)
        assert LOCK not in service.names()
        service.settle()
        if (name, elsewhere, begun) != ("clean stale", True, True):  # that says that it is over
            assert open_checkpoint(f"{place}/new").tree
    assert moment > 2
