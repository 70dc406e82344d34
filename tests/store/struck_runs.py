"""Run in a process of its own: the same edit again and again, each time struck at another file system operation.

`struck_runs.py SRC FOLDER BLOW SETTING` makes FOLDER/<n>/new; BLOW is `kill` or a signal's name. Every run is a fork
of this process; an audit hook counts what Python does to files and strikes at the n-th. Writes one JSON line per run.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import tensorstore  # noqa: F401  (before the forks, so that each of them is quick)

from surgery_cli.cli.main import run
from surgery_cli.store.write import staging

EVENTS = (
    "open",
    "os.mkdir",
    "os.rename",
    "os.link",
    "os.remove",
    "os.rmdir",
    "os.utime",
    "os.chmod",
    "shutil.",
    "ctypes.dlsym",
)
EDIT = ["rescale", "--by", "2", "--optimizer", "keep", "--quiet"]
SPREAD, LAST = 8, 5
"""How many moments are spread over a run, and how many at its end, where names change."""


def _strike_at(moment: int, blow: str, folder: str) -> list[int]:
    """Count operations on files in ``folder`` and strike this process at one of them."""
    seen = [0]

    def listen(event: str, arguments: tuple[object, ...]) -> None:
        if not event.startswith(EVENTS):
            return
        if event == "open" and not str(arguments[0]).startswith(folder):
            return
        seen[0] += 1
        if seen[0] == moment:
            number = signal.SIGKILL if blow == "kill" else signal.Signals[blow]
            os.kill(os.getpid(), number)

    sys.addaudithook(listen)
    return seen


def _run(source: str, destination: Path, moment: int, blow: str, setting: str) -> tuple[int, int]:
    """Exit code (negative: a signal) and operations counted, of one run."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if setting == "no-exchange":
            staging.exchange = lambda new, old: False
        seen = _strike_at(moment, blow, str(destination.parent))
        force = [] if setting == "plain" else ["--force"]
        code = 70
        try:
            run([EDIT[0], source, str(destination), "w", *EDIT[1:], *force])
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os.write(writer, str(seen[0]).encode())
            os._exit(code)
    os.close(writer)
    _, status = os.waitpid(child, 0)
    counted = os.read(reader, 20)
    os.close(reader)
    return os.waitstatus_to_exitcode(status), int(counted or 0)


def main() -> None:
    source, folder, blow, setting = sys.argv[1:]

    def prepared(name: str) -> Path:
        place = Path(folder, name)
        place.mkdir(parents=True)
        if setting != "plain":
            shutil.copytree(source, place / "new")
            (place / "new" / "old.txt").write_text("old", encoding="utf-8")
        return place / "new"

    code, operations = _run(source, prepared("whole"), 0, blow, setting)
    assert (code, operations > 20) == (0, True), (code, operations)
    spread = {1 + number * operations // SPREAD for number in range(SPREAD)}
    for moment in sorted(spread | set(range(operations - LAST + 1, operations + 1))):
        code, _ = _run(source, prepared(str(moment)), moment, blow, setting)
        sys.stdout.write(json.dumps({"moment": moment, "code": code}) + "\n")
        sys.stdout.flush()  # before the next fork copies what is not written yet


main()
