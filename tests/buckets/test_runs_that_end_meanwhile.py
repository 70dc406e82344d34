"""Whoever meets a run that ends in that moment reads what it has made, or is told so: nothing is called damaged."""

import itertools
import json

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
TRUE = (AT_WORK, "changed while it was read", "the destination 'ROOT/run/new' exists")


class Run:
    """A run to `new` that is about to end, of this machine or another; ``begun``: what it writes is not marked yet."""

    def __init__(self, service, folder, *, elsewhere, begun):
        self.service, self.folder, self.begun = service, folder, begun
        said = {"run": "x", **msgspec.to_builtins(Owner.here())}
        said |= {"machine": "feedbeef"} if elsewhere else {}
        said |= {
            "builds": f"{service.root}/run/" + ("new" if begun else ".new.surgery-tmp-0123abcd")
        }
        said |= {"replaces": False} if begun else {"marked": True}
        self.lock = json.dumps(said).encode()
        uploaded(service, folder, f"{service.root}/run/new")
        self.before = service.names()

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

    def ends_at(self, moment):
        """It ends before the request of this number is answered; gives whether there was one."""
        count, reached = itertools.count(1), []

        def before(_):
            if next(count) == moment:
                reached.append(moment)
                self.ends()

        self.service.before = before
        return reached


@pytest.mark.covers(1)
@pytest.mark.parametrize("begun", [True, False], ids=["writes", "replaces"])
@pytest.mark.parametrize("elsewhere", [True, False], ids=["elsewhere", "here"])
@pytest.mark.parametrize("name", COMMANDS)
def test_at_each_request(service, tmp_path, surgery, name, elsewhere, begun):
    run = Run(service, saved(tmp_path / "ck"), elsewhere=elsewhere, begun=begun)
    for moment in range(1, LOOKS + 1):
        run.starts()
        place = f"{service.root}/run"
        names = {"SRC": str(tmp_path / "ck"), "NEW": f"{place}/new", "RUN": place}
        names["OUT"] = str(tmp_path / f"out{moment}")
        words = [names.get(word, word) for word in COMMANDS[name]]
        reached = run.ends_at(moment)
        result = surgery(*words)
        service.before = lambda request: None
        if not reached:
            break
        assert result.code in (0, 1, 2, 3), (moment, result.err)
        if result.err.startswith("error"):
            told = [text.replace("ROOT", service.root) for text in TRUE]
            assert any(text in result.err for text in told), (moment, result.err)
            assert ".surgery-tmp-lock' changed" not in result.err
            is_over = AT_WORK not in result.err and "exists" not in result.err
            assert ("run the command again" in result.err) == is_over
        assert LOCK not in service.names()
        service.settle()
        if (name, elsewhere, begun) != ("clean stale", True, True):  # that says that it is over
            assert open_checkpoint(f"{place}/new").tree
    assert moment > 2
