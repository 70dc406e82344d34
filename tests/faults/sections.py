"""What is done to runs, section by section: how a trial is drawn, how it is carried out, and how often."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.faults import calls
from tests.faults.machine import Case, Verdict


class Section(NamedTuple):
    """``draw`` says a trial in words, and ``strike`` carries out what words say: so each can be repeated."""

    draw: Callable[[Case, Random], str]
    strike: Callable[..., list[Verdict]]
    weight: int
    title: str


SECTIONS = {
    "calls": Section(
        calls.draw, calls.strike, 12, "a write-side call fails, does half, or is the last"
    ),
    "signals": Section(calls.draw_signal, calls.signal, 6, "a signal comes"),
}
