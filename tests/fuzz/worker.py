"""A process that reads thousands of inputs: `python -m tests.fuzz.worker KIND SEED FIRST COUNT JUDGED FOLDER`.

Its memory and time are bounded. Each line that it prints is JSON: what became of one input, so that nothing is lost
where the next one ends the process. A judge may end it, too: before it is asked, what is known so far is told, and the
line that follows, of the same number, stands in its place. Which input it works on, since when, and whether the judge
does, stands in the file `at`, for whoever watches it: what ends in the hands of a judge is no finding about this
program.
"""

import io
import json
import logging
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.explained import EXPLAINED
from tests.fuzz.mutations import mutated
from tests.fuzz.ocdbt import repaired
from tests.fuzz.readers import (
    JUDGES,
    READERS,
    by_door,
    difference,
    is_told,
    leaves_of,
    resealed,
)
from tests.fuzz.seeds import SEEDS

MEMORY_BYTES = 2 << 30
SECONDS = 20
REPAIRS = {"databases": repaired, "records": resealed}
"""What makes checksums good again, so that what is behind them is read."""
AT = struct.Struct("<qd?")
_DOORS = 0.04
"""Which share of the inputs is looked at by a command, too."""
_JUDGED_REFUSALS = 0.02


class TooLong(BaseException):
    """An input took more of the processor than it may; who waits for ever is ended from outside."""


class Worker:
    """Reads inputs of one kind; ``found`` counts what became of them."""

    def __init__(self, kind, seed, folder, judged=0):
        self.kind, self.seed, self.folder = kind, seed, folder
        self.judged_left = judged
        self.judging = lambda is_begun: None
        """Called where a judge begins, and where it has ended."""
        self.found = Counter()
        self.findings = []
        (folder / "seeds").mkdir(parents=True, exist_ok=True)
        self.cases = SEEDS[kind](folder / "seeds")
        self.contents = {file: file.read_bytes() for case in self.cases for file in case.files}
        self.saved = {}
        """What another reader makes of the real files, by what is opened."""

    def input(self, number):
        """The input of that number: what is opened, which file of it is changed, and how that then reads."""
        chance = Random(f"{self.kind} {self.seed} {number}")
        case = chance.choice(self.cases)
        file = chance.choice(case.files)
        every = list(self.contents)
        others = [self.contents[other] for other in chance.sample(every, min(6, len(every)))]
        content = mutated(self.contents[file], others, chance)
        if self.kind in REPAIRS and chance.random() < 0.9:
            content = REPAIRS[self.kind](content)
        return case.place, file, content, chance

    def take(self, number):
        place, file, content, chance = self.input(number)
        self.found["inputs"] += 1
        if content == self.contents[file]:
            self.found["unchanged"] += 1
        if self.kind in JUDGES and place not in self.saved:
            self.saved[place] = JUDGES[self.kind](place)
        file.write_bytes(content)
        try:
            self._read(number, place, file, chance)
        finally:
            file.write_bytes(self.contents[file])

    def _read(self, number, place, file, chance):
        """One outcome: what reading came to, or how a command failed that was tried as well."""
        from surgery_cli.errors import SurgeryError

        ours, refusal = None, ""
        try:
            ours = READERS.get(self.kind, leaves_of)(place)
            outcome = "accepted"
        except SurgeryError as error:
            outcome = f"refused, exit code {error.exit_code}"
            refusal = f"{error.problems[0].what}: {error.problems[0].why}"
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is a finding
            self.found[self._failed(number, "read", error)] += 1
            return
        if self.kind not in READERS and chance.random() < _DOORS:
            self.found["commands"] += 1
            try:
                by_door(place, chance)
            except BaseException as error:  # noqa: BLE001
                failed = self._failed(number, "command", error)
                outcome = outcome if failed == "refused by the system" else failed
        self.found[outcome] += 1
        if self.kind in JUDGES and (
            chance.random() < _JUDGED_REFUSALS or (ours is not None and self.judged_left > 0)
        ):
            self._judge(number, place, file, ours, refusal)

    def _judge(self, number, place, file, ours, refusal):
        self.judged_left -= ours is not None
        self.found["judged"] += 1
        self.judging(True)
        try:
            theirs = JUDGES[self.kind](place)
        except TooLong:
            said, opinion = None, "judge took too long"
        except BaseException as error:  # noqa: BLE001 - the judge may refuse as it likes
            said = f"{type(error).__name__}: {_cause(str(error))}"
        else:
            said = None
            opinion = self._compared(number, ours, theirs, refusal)
        finally:
            self.judging(False)
        if said is not None:
            opinion = (
                "refused by both" if ours is None else self._alone(number, place, file, ours, said)
            )
        self.found[opinion] += 1

    def _alone(self, number, place, file, ours, said):
        """What is read here and refused there: of an undamaged file the same must have been read, and `verify` tell."""
        saved = self.saved[place]
        there = {name: value for name, value in saved.items() if name in ours}
        if other := difference(ours, there):
            return self._find(number, "read by us alone", f"{file.name} changed, {other}; {said}")
        told = "told by verify" if is_told(place) else "verify agrees"
        gone = "leaves are gone, " if len(there) < len(saved) else ""
        return self._find(number, "read by us alone", f"{file.name} changed, {gone}{told}; {said}")

    def _compared(self, number, ours, theirs, refusal):
        if theirs is None:
            return "no opinion"
        if ours is None:
            return self._find(
                number, "refused by us alone", f"the judge reads it: {_cause(refusal)}"
            )
        if differs := difference(ours, theirs):
            return self._find(number, "differs", differs)
        return "read alike by the judge"

    def _failed(self, number, door, error):
        """What it is counted as."""
        from surgery_cli.cli import edge

        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        if isinstance(error, TooLong):
            return self._find(number, "time", f"{door}: over {SECONDS} s", error)
        refusal = edge._refusal_of_system(error)
        if refusal is None:
            return self._find(number, "bug", f"{door}: {type(error).__name__}: {error}", error)
        if "memory" in refusal.problems[0].what:
            return self._find(number, "memory", door, error)
        return "refused by the system"

    def _find(self, number, sort, said, error=None):
        """Keep a finding, unless it is explained; what it is counted as."""
        where = ""
        if error is not None:
            frames = [
                f for f in traceback.extract_tb(error.__traceback__) if "surgery_cli" in f.filename
            ]
            where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(frames[-3:]))
        for reason, one in EXPLAINED.items():
            if one.covers(self.kind, sort, said):
                return f"explained: {reason}"
        finding = {
            "kind": self.kind,
            "seed": self.seed,
            "number": number,
            "sort": sort,
            "said": said[-3000:],
            "where": where,
        }
        self.findings.append(finding)
        return sort


def _cause(text):
    """A message without what it names."""
    import re

    return re.sub(r"\d+", "#", re.sub(r"'[^']*'", "''", text))[:240]


def bound():
    """Bound this process's memory from here on: what is mapped now, and two gigabytes."""
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY_BYTES, mapped + MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _too_long(*_):
    raise TooLong


def main(kind, seed, first, count, judged, folder):
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    folder = Path(folder)
    worker = Worker(kind, int(seed), folder, int(judged))
    with (folder / "at").open("w+b") as file:
        file.write(bytes(AT.size))
        file.flush()
        place = mmap.mmap(file.fileno(), AT.size)
    worker.take(-1)  # loads what is loaded late
    worker.found.clear()
    worker.findings.clear()
    bound()
    signal.signal(signal.SIGPROF, _too_long)
    since = time.process_time()

    def tell():
        """What is known of the input so far."""
        _say({
            "number": number,
            "counts": worker.found,
            "findings": worker.findings,
            "cpu": time.process_time() - since,
            "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        })  # fmt: skip

    def judging(is_begun):
        if is_begun:
            tell()  # nobody knows whether the judge comes back
        AT.pack_into(place, 0, number, time.time(), is_begun)

    worker.judging = judging
    for number in range(int(first), int(first) + int(count)):
        AT.pack_into(place, 0, number, time.time(), False)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            worker.take(number)
        except TooLong as error:
            # whatever was known of the input is of one that was not finished
            worker.found = Counter({"inputs": 1})
            worker.found[worker._find(number, "time", f"over {SECONDS} s", error)] += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        tell()
        since = time.process_time()
        worker.found.clear()
        worker.findings.clear()


def _say(line):
    os.write(1, json.dumps(line).encode() + b"\n")


if __name__ == "__main__":
    sys.stdin = io.StringIO()
    main(*sys.argv[1:])
