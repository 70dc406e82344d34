"""What others do while a command stands still at one of its calls: to its source, and to the same destination."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

from tests.faults.commands import Ended, Fault
from tests.faults.machine import Case, Verdict
from tests.faults.rows import BY_NAME, OTHER, as_jax
from tests.faults.states import digest_of

STANDING = Fault("STOP", reads=True)
GONE = ("deleted", "moved", "emptied")
ANOTHER = ("exchanged", "saved-over")
"""Another checkpoint comes to the place of the source: at once, or file by file, as copies and saves bring them."""
DEEDS = (*GONE, *ANOTHER, "whole", "killed", "beside")
"""To the source; or another run of the same command: to its end, killed somewhere, or standing still as well."""


def draw(case: Case, chance: Random) -> str:
    deed = chance.choice(DEEDS)
    last = case.counted(STANDING)
    return f"{deed} {chance.randint(1, last)} {chance.randint(1, last)}"


def strike(case: Case, words: str, *, again: bool = True) -> list[Verdict]:
    """Let it stand still at a call, do that, and let it go on."""
    deed, at, other = words.split()
    of_another = _of_another(case) if deed in ANOTHER else ""
    case.lay()
    ended = case.run(STANDING._replace(at=int(at)))
    if not ended.stopped:
        return [case.judge(words, ended)]
    if deed in ANOTHER:
        _replace(case, at_once=deed == "exchanged")
        return [_with_another(case, words, case.commands.go_on(ended), of_another)]
    if deed in GONE:
        return [_without_source(case, words, _gone_on(case, deed, ended))]
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


def _gone_on(case: Case, deed: str, ended: Ended) -> Ended:
    """Take the source away, and let the command go on."""
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
    return case.commands.go_on(ended)


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


def _another(case: Case) -> Path:
    """A source of the same layout with other values, saved by itself."""
    folder = case.place.with_name(f"{case.row.name}-another")
    if not folder.exists():
        for name in ("in", "out"):
            (folder / name).mkdir(parents=True)
        BY_NAME[case.row.layout].save(folder / "in", as_jax(OTHER))
        case.row.prepare(folder)
    return case.row.source(folder)


def _replace(case: Case, *, at_once: bool) -> None:
    """Put the other one where the source is; no file is written into, as nobody does who copies or saves."""
    source, fresh = case.row.source(case.place), case.place / "fresh"
    another = _another(case)
    if another.is_file():
        shutil.copy2(another, fresh)
        fresh.replace(source)
        return
    shutil.copytree(another, fresh)
    if at_once:
        source.rename(case.place / "aside")
        fresh.rename(source)
        shutil.rmtree(case.place / "aside")
        return
    coming = {file.relative_to(fresh) for file in fresh.rglob("*") if file.is_file()}
    for file in sorted(coming):
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (fresh / file).replace(source / file)
    for file in [path for path in source.rglob("*") if path.is_file()]:
        if file.relative_to(source) not in coming:
            file.unlink()
    shutil.rmtree(fresh)


def _of_another(case: Case) -> str:
    """The result of the same command on the other source, in one word."""
    if not case.of_another:
        case.lay()
        _replace(case, at_once=True)
        case.run()
        case.of_another = digest_of(case.place / case.row.result)
    return case.of_another


def _with_another(case: Case, words: str, ended: Ended, of_another: str) -> Verdict:
    """A result is of one of the two sources, or there is none: never of both."""
    verdict = Verdict(case.row.name, words, ended, case.state(), case.left())
    if ended.late:
        verdict.blame("hang", "it did not end")
    if ended.code not in (0, 2, 3):
        verdict.blame("exit", f"{ended.code}, and the source is another: {ended.said}")
    if case.row.result.startswith("in/"):
        return verdict
    if verdict.state == "torn" and digest_of(case.place / case.row.result) == of_another:
        verdict.state = "new"
    if verdict.state in ("torn", "gone"):
        verdict.blame("torn", f"the destination is {verdict.state}: {ended.said}")
    elif (ended.code == 0) != (verdict.state == "new"):
        verdict.blame("exit", f"{ended.code}, and the destination is {verdict.state}: {ended.said}")
    left = [name for name in verdict.left if not name.startswith("in/")]
    if left and not case.row.keeps:
        verdict.blame("sentence", f"left: {left}")
    return verdict
