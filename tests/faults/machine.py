"""One command, one fault, one verdict: what stands afterwards, and whether what was said of it is true."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np

from tests.faults.commands import Commands, Ended, Fault
from tests.faults.rows import Row
from tests.faults.states import digest_of, names_below
from tests.source_trees import everything_of

SET_ASIDE = ".surgery-old"
SIGNALS = {"INT": 130, "TERM": 143, "HUP": 129}
KILLED = -9

UNRECORDED = "only its record"
RECORD_KEPT = re.compile(r"'([^']+)' keeps the record of")
NOTHING = "nothing was left behind"
COMPLETE = re.compile(r"'([^']+)' is complete")
REPORTED = re.compile(r"^verified: the tree is as planned", re.MULTILINE)
"""All was done, and said, and the signal came on the way out: Python's own handlers stand again."""
PUT_ASIDE = re.compile(r"'([^']+)' is what stood at '[^']+', and could not be put back")
REMAINS = re.compile(
    r"'([^']+)'(?: could not be removed|, which stood there before, is not removed)"
)
KEPT = re.compile(r"'([^']+)' keeps what is done[^`]*`surgery ([^`]*)` goes on from there")
STAGING = re.compile(r"\..+\.surgery-tmp-[0-9a-f]{8}(-.*)?|.+\.surgery-old")


@dataclass
class Verdict:
    """What became of one run: what stands at the destination, what else is there, and what is wrong with that."""

    row: str
    what: object
    ended: Ended
    state: str = ""
    left: list[str] = field(default_factory=list)
    complaints: list[tuple[str, str]] = field(default_factory=list)
    """Which promise, and how it was broken."""

    def blame(self, promise: str, how: str) -> None:
        self.complaints.append((promise, how))


class Case:
    """A row, the folder in which it is run again and again, and what was seen of it before."""

    def __init__(self, row: Row, folder: Path, commands: Commands) -> None:
        self.row = row
        self.commands = commands
        self.template = folder / f"{row.name}-template"
        self.place = folder / row.name
        row.build(self.template)
        self.before = self._looked_at()
        self.names = names_below(self.template)
        self.right: dict[str, bool] = {}
        """Of digests of results: whether Orbax restored what is expected."""
        self._counts: dict[Fault, int] = {}
        self.of_another = ""
        """A digest of what comes of another source, once that was asked."""
        self.judged = 0
        self.why = ""
        self.lay()
        ended = self.run()
        assert ended.code == 0, ended.said
        self.new = self._digests(self.place)
        self.old = self._digests(self.template)
        assert self.is_right(), (row.name, self.why)
        assert not self.left(), self.left()

    def lay(self) -> None:
        """The folder as it is before a run."""
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.template, self.place, symlinks=True)

    def run(self, fault: Fault | None = None, **more: object) -> Ended:
        row = self.row
        fault = fault or Fault()
        fault = fault._replace(deny=",".join(filter(None, (row.deny, fault.deny))))
        return self.commands(row.typed(self.place), self.place, fault, small=row.small, **more)

    def counted(self, fault: Fault) -> int:
        """At how many calls it can strike."""
        if fault not in self._counts:
            self.lay()
            self._counts[fault] = self.run(fault).counted
        return self._counts[fault]

    # -- what is there -----------------------------------------------------------------------------------------------

    def left(self) -> list[str]:
        """What is there beside the destination that was not there before: of folders, not what is in them."""
        made = self.row.made
        new = {
            name
            for name in names_below(self.place) - self.names
            if not any(name == one or name.startswith(f"{one}/") for one in made)
        }
        return sorted(n for n in new if str(Path(n).parent) not in new)

    def state(self) -> str:
        """`old` (or nothing, as before), `new`, `torn`, or one of the first two without its record, or gone."""
        now = self._digests(self.place)
        if now == self.old:
            return "old"
        result, *beside = now
        if not result:
            aside = digest_of(self.place / f"{self.row.result}{SET_ASIDE}")
            return "gone" if aside != self.old[0] or any(beside) else "old set aside"
        which = "old" if result == self.old[0] else "new" if self.is_right() else "torn"
        if which == "torn" or beside == (self.old if which == "old" else self.new)[1:]:
            return which
        return f"{which} without record" if not any(beside) else "torn"

    def _digests(self, place: Path) -> list[str]:
        """Of the result, and of what stands beside it."""
        beside = self.row.made[1:]
        return [digest_of(place / one) for one in (self.row.result, *beside)]

    def is_right(self) -> bool:
        """Whether Orbax restores what is expected; asked once for each state."""
        place = self.place / self.row.result
        digest = digest_of(place)
        if digest not in self.right:
            self.judged += 1
            try:
                found = jax.tree.map(np.asarray, self.row.restore(place))
                self.right[digest] = _equal(found, self.row.expected)
            except Exception as error:  # noqa: BLE001 - whatever Orbax says
                self.right[digest] = False
                self.why = f"{type(error).__name__}: {error}"[:300]
        return self.right[digest]

    def _looked_at(self) -> dict[str, tuple[int, int, str]]:
        """Everything that no run may change: all that stands in the template but the destination."""
        return self._untouched(self.template)

    def _untouched(self, place: Path) -> dict[str, tuple[int, int, str]]:
        known = everything_of(place)
        made = self.row.made
        folders = {str(Path(one).parent) for one in made} | {
            str(Path(one).parent.parent) for one in made
        }
        return {
            name: what
            for name, what in known.items()
            if name not in folders
            and not any(name == one or name.startswith(f"{one}/") for one in made)
        }

    # -- what is said of it ------------------------------------------------------------------------------------------

    def judge(self, what: object, ended: Ended, allowed: Sequence[int] = (4,)) -> Verdict:
        """``allowed`` are the exit codes, besides 0, that fit what was done to the run."""
        verdict = Verdict(self.row.name, what, ended, self.state(), self.left())
        if ended.late:
            verdict.blame("hang", "it did not end")
        now = self._untouched(self.place)
        changed = [name for name, was in self.before.items() if now.get(name) != was]
        if changed:
            verdict.blame("source", f"changed: {changed[:3]}")
        if verdict.state in ("torn", "gone"):
            verdict.blame("torn", f"the destination is {verdict.state}")
        if ended.code == KILLED:
            self._judge_killed(verdict)
        else:
            self._judge_said(verdict, allowed)
        return verdict

    def _judge_killed(self, verdict: Verdict) -> None:
        for name in verdict.left:
            if not STAGING.fullmatch(Path(name).name):
                verdict.blame("left", f"'{name}' is no name of ours")

    def _judge_said(self, verdict: Verdict, allowed: Sequence[int]) -> None:
        ended, state, said = verdict.ended, verdict.state, verdict.ended.said
        named = {
            m[1]
            for pattern in (REMAINS, KEPT, RECORD_KEPT, PUT_ASIDE)
            for m in pattern.finditer(said)
        }
        left = {str(self.place / name) for name in verdict.left}
        for name in named - left:
            verdict.blame("sentence", f"said to be there, and is not: {name}")
        for name in left - named:
            verdict.blame("sentence", f"is there, and was not said: {name}")
        if ended.code not in (*allowed, 0):
            verdict.blame("exit", f"{ended.code}, not one of {allowed}")
        if NOTHING in said and (left or state != "old"):
            verdict.blame("sentence", f"nothing left behind? {state}, {verdict.left}")
        complete = COMPLETE.search(said)
        meant = "new without record" if UNRECORDED in said else "new"
        if complete and state != meant:
            verdict.blame("sentence", f"{meant}? {state}")
        if ended.code == 0 and state != "new":
            verdict.blame("exit", f"0, and the destination is {state}")
        told = {"old without record": RECORD_KEPT, "old set aside": PUT_ASIDE}
        is_reported = state == meant and REPORTED.search(said)
        is_said = complete or is_reported or (state in told and told[state].search(said))
        if ended.code and state != "old" and not is_said:
            verdict.blame(
                "sentence", f"exit {ended.code}, the destination is {state}, and nobody says so"
            )

    # -- and then ----------------------------------------------------------------------------------------------------

    def goes_on(self, verdict: Verdict) -> None:
        """What was left is removed or gone on from, as was said, and the same command comes to its end."""
        advised = KEPT.search(verdict.ended.said)
        is_over = verdict.state.startswith("new") and not self.row.keeps and not self.row.stands
        typed = shlex.split(advised[2]) if advised else self.row.typed(self.place)
        if verdict.left and not self.row.keeps:
            ended = self.commands(["clean", str(self.place / self.row.result)], self.place)
            if ended.code:
                verdict.blame("clean", ended.said)
        if is_over:
            return
        aside = self.place / f"{self.row.result}{SET_ASIDE}"
        if aside.exists() and verdict.state == "new":  # whether it is still wanted is asked
            ended = self.commands(typed, self.place)
            if (ended.code, "stands beside" in ended.said) != (2, True):
                verdict.blame("again", f"exit {ended.code}: {ended.said}")
            shutil.rmtree(aside)
        ended = self.commands(typed, self.place, small=self.row.small)
        if ended.code or self.state() != "new":
            verdict.blame("again", f"exit {ended.code}, {self.state()}: {ended.said}")
        elif left := self.left():
            verdict.blame("again", f"left: {left}")


def _equal(found: object, expected: object) -> bool:
    if jax.tree.structure(found) != jax.tree.structure(expected):
        return False
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)
