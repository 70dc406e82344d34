"""Every call that writes fails, once or from then on, does half, or is the last: and a signal may come at any."""

from __future__ import annotations

from random import Random
from signal import Signals

from tests.faults.commands import Fault
from tests.faults.machine import SIGNALS, Case, Verdict

FAULTS = {
    name: Fault(name.rstrip("+"), good=name.endswith("+"))
    for name in ("KILL", "ENOSPC", "ENOSPC+", "EIO", "EIO+", "EINTR", "short", "torn")
}
BLOWS = {name: Fault(name, reads=True) for name in (*SIGNALS, "KILL")}
"""These come at calls that read, too, or after so many seconds."""
LATEST = 0.2
"""Seconds after which most runs are over."""


def draw(case: Case, chance: Random) -> str:
    """A fault, and at which call."""
    name = chance.choice(list(FAULTS))
    return f"{name} {chance.randint(1, case.counted(FAULTS[name]))}"


def strike(case: Case, words: str, *, again: bool = True) -> list[Verdict]:
    """Run it once, with the fault that ``words`` name; and ``again``, as it says, or as if nothing had been."""
    name, at = words.split()
    case.lay()
    verdict = case.judge(words, case.run(FAULTS[name]._replace(at=int(at))))
    if again and verdict.ended.code:
        case.goes_on(verdict)
    return [verdict]


def draw_signal(case: Case, chance: Random) -> str:
    """A signal, and at which call or after how many seconds."""
    name = chance.choice(list(BLOWS))
    if chance.random() < 0.5:
        return f"{name} {chance.randint(1, case.counted(BLOWS[name]))}"
    return f"{name} {chance.uniform(0, LATEST):.4f}s"


def signal(case: Case, words: str, *, again: bool = True) -> list[Verdict]:
    """Run it once, and let a signal come."""
    name, at = words.split()
    case.lay()
    is_later = at.endswith("s")
    moment = {"after": (float(at[:-1]), name)} if is_later else {}
    ended = case.run(None if is_later else BLOWS[name]._replace(at=int(at)), **moment)
    before = -Signals[f"SIG{name}"]  # before the command had begun
    verdict = case.judge(words, ended, (SIGNALS.get(name, 0), before))
    if again and ended.code:
        case.goes_on(verdict)
    return [verdict]
