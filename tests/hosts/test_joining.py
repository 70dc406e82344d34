"""Processes that come together one after the other: who dies meanwhile is found by all that are there already."""

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

from surgery_cli.console import many_hosts
from surgery_cli.errors import LostProcessError, PlanError
from surgery_cli.hosts import current, jax_private, lives, membership, runtime, watch
from surgery_cli.hosts.membership import Membership
from surgery_cli.hosts.roll import Roll
from surgery_cli.hosts.runtime import Seat
from surgery_cli.settings.run import Options
from tests.hosts.companies import REPOSITORY, BoardInMemory, Processes, saved

LOADED = 60.0
"""What a busy machine may take beside; a promise broken is a wait of five minutes."""

COMING = """
import os, sys
from surgery_cli.hosts.membership import Membership
from surgery_cli.hosts.runtime import Seat, connect
seat = Seat(sys.argv[1], 1, 3)
member = Membership(connect(seat), seat, print)
os._exit(0)
"""
"""One of three that dies as soon as it has joined, before it said that it lives."""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    tree = {"params": {"w": np.ones((8, 4), np.float32)}}
    return saved(tmp_path_factory.mktemp("source") / "ck", tree)


def test_one_that_dies_before_its_first_sign_of_life_is_found_with_its_host(source, tmp_path):
    """While the third has not come yet."""
    processes = Processes(3, "cast", source, tmp_path / "new", "**", "--to", "bfloat16", only=[0])
    subprocess.run([sys.executable, "-c", COMING, processes.address], cwd=REPOSITORY, check=True)
    (first,) = processes.ended()
    assert first.code == 143, first
    assert f"process 1 of 3 on '{os.uname().nodename}' is gone" in first.err
    assert first.seconds < LOADED
    assert not list(tmp_path.iterdir())


@pytest.mark.sampled(2)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_those_that_wait_for_others_end_with_the_one_that_ends(source, tmp_path, how):
    processes = Processes(
        3, "cast", source, tmp_path / "new", "**", "--to", "bfloat16", only=[0, 1]
    )
    runtime._wait_for_listener(processes.address)
    board = runtime.Board(jax_private.client(processes.address, start_seconds=300), None)
    roll = Roll(board, Seat(processes.address, 7, 3))
    while roll.joined() != {0, 1}:
        time.sleep(0.01)
    processes.end(0, how)
    ended = processes.ended()
    assert ended[1].code == 143, ended
    assert "process 0 of 3" in ended[1].err
    assert ended[1].seconds < LOADED
    assert "on ''" not in ended[1].err


def test_a_signal_between_joining_and_the_first_look_is_told(monkeypatch):
    board = BoardInMemory()

    def strike(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(runtime, "connect", lambda *_: board)
    monkeypatch.setattr(Membership, "start", strike)
    monkeypatch.setattr(current, "current", [])
    monkeypatch.setattr(many_hosts, "current", [])
    told = Options(distributed=True, coordinator="127.0.0.1:1", process=0, processes=2)
    with pytest.raises(KeyboardInterrupt), many_hosts.joined(told):
        pass
    assert "end/failed" in board.values


def test_who_did_not_come_is_named(monkeypatch):
    monkeypatch.setattr(runtime, "START_SECONDS", 0.2)
    monkeypatch.setattr(runtime, "_QUIET_SECONDS", 0.05)
    board, said = BoardInMemory(), []
    for number in (0, 2):
        Roll(board, Seat("there:1", number, 4)).join()
    with pytest.raises(
        LostProcessError, match="process 1 and 3 of 4 did not come to there:1"
    ) as lost:
        Roll(board, Seat("there:1", 0, 4)).wait_for_all(lambda: None, said.append)
    assert len(said) == 1
    assert "process 1 and 3 of 4" in said[0]
    # such a process previews alone
    assert "`--dry-run`" in said[0]
    assert "none with `--dry-run`" in lost.value.problems[0].fix


def test_processes_that_were_told_of_another_count_are_refused():
    board = BoardInMemory()
    Roll(board, Seat("", 0, 2)).join()
    Roll(board, Seat("", 1, 3)).join()
    with pytest.raises(PlanError, match="was told that there are 3 processes, this one 2"):
        Roll(board, Seat("", 0, 2)).wait_for_all(lambda: None, print)


@contextmanager
def watching(board, monkeypatch, number=1):
    """A member whose beats are fast, and why its run ended."""
    for module in (lives, watch, membership):
        monkeypatch.setattr(module, "BEAT_SECONDS", 0.01)
    for name in ("PATIENCE_SECONDS", "UNANSWERED_SECONDS"):
        monkeypatch.setattr(watch, name, 0.05)
    ended = threading.Event()
    failures = []
    member = Membership(board, Seat("", number, 2), failures.append)
    monkeypatch.setattr(member, "leave", lambda _: ended.set())
    member.start()
    yield ended, failures
    member._watch.stop()


class Silent(BoardInMemory):
    """It answers no more, as of a machine that is lost; or says that nobody is there."""

    def __init__(self, *, says_so):
        super().__init__()
        self.over, self.says_so = threading.Event(), says_so

    def below(self, folder):
        if folder == "end":
            if self.says_so:
                raise RuntimeError("UNAVAILABLE")
            self.over.wait(LOADED)
        return super().below(folder)


@pytest.mark.parametrize("says_so", [True, False])
def test_a_board_that_is_gone_ends_who_asks_it(monkeypatch, says_so):
    """In words of ours, whether its machine refuses the call or says nothing."""
    board = Silent(says_so=says_so)
    Roll(board, Seat("", 0, 2)).join()
    with watching(board, monkeypatch) as (ended, failures):
        assert ended.wait(LOADED)
        board.over.set()
    (failure,) = failures
    (problem,) = failure.told(1, 2)
    assert (failure.number, failure.code) == (0, 143)
    assert problem.what == f"process 0 of 2 on '{os.uname().nodename}' is gone"


FUNCTION = """
import os, time
def wait(array, path):
    open(os.environ["MARK"], "w").close()
    time.sleep(600)
"""


@pytest.mark.check_all
def test_one_that_dies_in_a_function_of_the_users_is_found(source, tmp_path):
    (tmp_path / "f.py").write_text(FUNCTION)
    mark, where = tmp_path / "mark", tmp_path / "out"
    where.mkdir()
    processes = Processes(
        2, "map", source, where / "new", "**", "--with", f"{tmp_path / 'f.py'}:wait",
        environment={"MARK": str(mark)},
    )  # fmt: skip
    while not mark.exists():
        assert None in {one.poll() for one in processes.started}
        time.sleep(0.05)
    processes.end(1)
    ended = processes.ended()
    assert ended[0].code == 143, ended
    assert f"process 1 of 2 on '{os.uname().nodename}' is gone" in ended[0].err
    assert ended[0].seconds < lives.PATIENCE_WITH_CALLS_SECONDS + LOADED
    assert not list(where.iterdir())
