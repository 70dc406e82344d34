"""What is done to runs, section by section: how a trial is drawn, how it is carried out, and how often."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tests.faults import calls, filesystems, flips, meanwhile, power
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
    "meanwhile": Section(
        meanwhile.draw,
        meanwhile.strike,
        4,
        "the source goes, or another run comes to its place",
    ),
    "power": Section(
        power.draw, power.strike, 1, "the power goes after a call, and what was not synced is lost"
    ),
    "filesystems": Section(
        filesystems.draw,
        filesystems.strike,
        2,
        "the device fills, is another one, has no links, is read-only, or everything is another user's",
    ),
    "flips": Section(flips.draw, flips.strike, 4, "a bit flips in a result, sealed or not"),
}
