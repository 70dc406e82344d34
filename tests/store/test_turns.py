"""Transactions that are on their way at once come to an end in the order in which they were begun."""

import threading

import pytest

from surgery_cli.store.write.transactions import Turns


def test_a_turn_waits_for_the_one_before_in_whatever_thread():
    turns, order = Turns(), []
    first, second = turns.take(), turns.take()

    def come_early():
        with second.taken():
            order.append("second")

    early = threading.Thread(target=come_early)
    early.start()
    with first.taken():
        order.append("first")
    early.join()
    assert order == ["first", "second"]


def test_a_turn_that_need_not_wait_does_not():
    turns = Turns()
    turns.take()
    with turns.take().taken(waits=False):
        pass


def test_what_waits_for_a_turn_that_fails_fails_with_it():
    turns = Turns()
    first, second, third = (turns.take() for _ in range(3))
    with pytest.raises(OSError, match="full"), first.taken():
        raise OSError("the disk is full")
    with pytest.raises(OSError, match="full"), second.taken():
        raise AssertionError("it is not reached")
    third.over.cancel()


def test_a_turn_that_is_given_up_ends_the_waiting():
    turns = Turns()
    first, second = turns.take(), turns.take()
    first.fail(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), second.taken():
        raise AssertionError("it is not reached")
