"""A signal that comes while something is started is obeyed once whoever started it knows of it."""

import ast
import signal
import threading
import time
from pathlib import Path

import pytest

from surgery_cli.inputs.ending_signals import ENDED_BY_ANOTHER, INTERRUPTING
from surgery_cli.store.filesystem.interruptions import Threads, deferred, uninterrupted
from surgery_cli.store.filesystem.links import Linker

PACKAGE = Path(__file__).parents[2] / "surgery_cli"


class Ended(BaseException):
    """As a command line raises it."""


@pytest.fixture(params=INTERRUPTING)
def number(request):
    def end(*_):
        raise Ended

    before = signal.signal(request.param, end)
    yield request.param
    signal.signal(request.param, before)


@pytest.fixture
def struck(monkeypatch, number):
    """Each thread that is started runs by the time when the signal comes, and its starter has not heard of it."""
    start = threading.Thread.start

    def strike(thread):
        start(thread)
        signal.raise_signal(number)

    monkeypatch.setattr(threading.Thread, "start", strike)


def test_whatever_a_pool_has_begun_is_over_when_it_is_left(struck):
    going, done = threading.Event(), []

    def work():
        going.wait(10)
        time.sleep(0.1)
        done.append(1)

    def begin():
        with Threads(3) as pool:
            try:
                pool.submit(work)
            finally:
                going.set()

    with pytest.raises(Ended):
        begin()
    assert done == [1]


def test_what_is_carried_meanwhile_is_waited_for(struck, monkeypatch):
    going, done = threading.Event(), []
    linker = Linker("never")
    with pytest.raises(Ended):
        linker.meanwhile(lambda: (going.wait(10), done.append(1)))
    going.set()
    linker.wait()
    assert done == [1]


def test_a_signal_is_obeyed_after_the_block_even_if_that_fails(number):
    def fail():
        with deferred():
            signal.raise_signal(number)
            raise ValueError

    with pytest.raises(Ended) as ended:
        fail()
    assert isinstance(ended.value.__context__, ValueError)
    with uninterrupted():
        signal.raise_signal(number)
    with pytest.raises(Ended):
        signal.raise_signal(number)


@pytest.mark.parametrize("block", [deferred, uninterrupted])
def test_what_nobody_awaits_from_another_process_keeps_its_meaning(block):
    with block():
        assert signal.getsignal(ENDED_BY_ANOTHER) is signal.SIG_DFL


@pytest.mark.parametrize("block", [deferred, uninterrupted])
def test_a_signal_that_comes_while_handlers_are_given_back_is_obeyed_and_so_is_the_next(
    block, number, monkeypatch
):
    set_handler, own = signal.signal, signal.getsignal(number)

    def given_back(which, handler):
        found = set_handler(which, handler)
        if handler is own:
            monkeypatch.undo()
            signal.raise_signal(number)
        return found

    others = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP} - {number}
    before = {other: set_handler(other, own) for other in others}
    try:
        with pytest.raises(Ended), block():
            monkeypatch.setattr(signal, "signal", given_back)
        for other in others:
            with pytest.raises(Ended):
                signal.raise_signal(other)
    finally:
        for other, handler in before.items():
            set_handler(other, handler)


def test_no_other_pool_is_made():
    made = [
        path.name
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Name) and node.id == "ThreadPoolExecutor"
    ]
    assert set(made) == {"interruptions.py"}
