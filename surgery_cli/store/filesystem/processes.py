"""Which process something belongs to, and whether that one still lives, as far as it can be seen from here."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from enum import StrEnum
from functools import cache
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import msgspec


class State(StrEnum):
    """What is known of the run that made a staging directory."""

    LIVING = "living"
    DEAD = "dead"
    ELSEWHERE = "elsewhere"
    """On another machine, in another container, or before this machine was started: it may still run."""
    UNKNOWN = "unknown"
    WHOLE = "whole"
    """Of a run in a bucket that does not live here: what it was to replace is half replaced, what it built is whole."""
    LOST = "lost"
    """As ``WHOLE``, but what it built is not whole any more: neither of the two checkpoints is."""


class Owner(msgspec.Struct, frozen=True):
    """A process: ``machine`` marks where its number means it, ``started`` tells it from a later one of that number."""

    host: str
    machine: str
    pid: int
    started: str

    @classmethod
    def here(cls) -> Owner:
        """This process."""
        pid = os.getpid()
        return cls(platform.node(), this_machine(), pid, _started(pid) or "")

    @property
    def state(self) -> State:
        if self.machine != this_machine():
            return State.ELSEWHERE
        started = _started(self.pid)
        if started is None:
            return State.DEAD
        is_same = not started or not self.started or started == self.started
        return State.LIVING if is_same else State.DEAD


class Claim(NamedTuple):
    """Of a place that a run has, or had: what that means for its destination, whose it is, and what to do."""

    destination: str
    what: str
    why: str
    fix: str
    state: State


def claim_by(owner: Owner | None, place: Path, destination: str, *, goes_on: str = "") -> Claim:
    """What is said of a place that a run has made; ``goes_on``: the way on from there, if it keeps something."""
    what = f"another run is writing to '{destination}'"
    state = State.UNKNOWN if owner is None else owner.state
    clean = f"`surgery clean {quote(destination)}"
    if owner is not None and state is State.DEAD:
        return Claim(
            destination,
            f"'{destination}' was left by a run that was killed",
            f"it was process {owner.pid} on this machine, which is gone; it had made '{place}'",
            f"{clean}` removes what it left{goes_on}",
            state,
        )
    if owner is not None and state is State.LIVING:
        why = f"process {owner.pid} on this machine has made '{place}', and is alive"
        return Claim(destination, what, why, f"wait for it, or end it (`kill {owner.pid}`)", state)
    goes_on_stale = f"{goes_on} (add `--stale`)" if goes_on else ""
    who = "somebody" if owner is None else f"process {owner.pid} on '{owner.host}'"
    return Claim(
        destination,
        what,
        f"{who} has made '{place}'; whether that still runs cannot be seen from here",
        f"wait for it; if it is over, {clean} --stale` removes what it left{goes_on_stale}",
        state,
    )


@cache
def this_machine() -> str:
    """A mark of this machine since it was started, and of the process numbers that are seen here."""
    boot = numbers = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        numbers = str(Path("/proc/self/ns/pid").readlink())
    return hashlib.sha256(f"{platform.node()}\0{boot}\0{numbers}".encode()).hexdigest()[:8]


def _started(pid: int) -> str | None:
    """When a process was started, in the system's clock ticks ('' if it does not tell); None if there is none."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return None
    except PermissionError:
        pass  # somebody else's
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return "" if not Path("/proc/self/stat").exists() else None
    except OSError:
        return ""
    state, *rest = fields.rpartition(")")[2].split()
    return None if state in "ZX" else rest[18]
