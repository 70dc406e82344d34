"""What others do while a command stands still at one of its calls: to its source, and to the same destination."""

from __future__ import annotations

import shutil
from random import Random

from tests.faults.commands import Ended, Fault
from tests.faults.machine import Case, Verdict

STANDING = Fault("STOP", reads=True)
DEEDS = ("deleted", "moved", "emptied", "whole", "killed", "beside")
"""To the source; or another run of the same command: to its end, killed somewhere, or standing still as well."""


def draw(case: Case, chance: Random) -> str:
    deed = chance.choice(DEEDS)
    last = case.counted(STANDING)
    return f"{deed} {chance.randint(1, last)} {chance.randint(1, last)}"


def strike(case: Case, words: str, *, again: bool = True) -> list[Verdict]:
    """Let it stand still at a call, do that, and let it go on."""
    deed, at, other = words.split()
    case.lay()
    ended = case.run(STANDING._replace(at=int(at)))
    if not ended.stopped:
        return [case.judge(words, ended)]
    if deed in ("deleted", "moved", "emptied"):
        source = case.row.source(case.place)
        if deed == "moved":
            source.rename(source.with_name("moved"))
        elif deed == "emptied" and source.is_dir():
            shutil.rmtree(source)
            source.mkdir()
        elif source.is_dir():
            shutil.rmtree(source)
        else:
            source.unlink()
        return [_without_source(case, words, case.commands.go_on(ended))]
    fault = {
        "whole": None,
        "killed": Fault("KILL", int(other)),
        "beside": STANDING._replace(at=int(other)),
    }
    second = case.run(fault[deed])
    first = case.commands.go_on(ended)
    if second.stopped:
        second = case.commands.go_on(second)
    verdict = Verdict(case.row.name, words, first, case.state(), case.left())
    for one in (first, second):
        if one.late:
            verdict.blame("hang", "it did not end")
        if one.code not in (0, 2, 3, 4, -9):
            verdict.blame("exit", f"{one.code}: {one.said}")
    if verdict.state in ("torn", "gone"):
        verdict.blame("torn", f"the destination is {verdict.state}: {first.said} {second.said}")
    if 0 in (first.code, second.code) and verdict.state != "new":
        verdict.blame("exit", f"one said 0, and the destination is {verdict.state}")
    return [verdict]


def _without_source(case: Case, words: str, ended: Ended) -> Verdict:
    """A source that went before all was read is an error of it; a result that got its name is whole."""
    verdict = Verdict(case.row.name, words, ended, case.state(), case.left())
    if ended.late:
        verdict.blame("hang", "it did not end")
    is_in_place = case.row.result.startswith("in/")
    if verdict.state == "torn" and not is_in_place:
        verdict.blame("torn", f"the destination is torn: {ended.said}")
    if ended.code not in (0, 2, 3):
        verdict.blame("exit", f"{ended.code}, and the source is gone")
    if ended.code == 0 and verdict.state != "new" and not is_in_place:
        verdict.blame("exit", f"0, and the destination is {verdict.state}")
    if ended.code and verdict.state == "new" and "is complete" not in ended.said:
        verdict.blame("sentence", f"exit {ended.code}, and the result stands: {ended.said}")
    left = [name for name in verdict.left if not name.startswith("in/")]
    if left and not case.row.keeps:
        verdict.blame("sentence", f"left: {left}")
    return verdict
