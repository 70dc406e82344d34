"""Read many inputs, in processes that are watched: `python -m tests.fuzz N [--kinds …] [--seed S] [--counts FILE]`.

Inputs are numbered, and what a number gives is the same everywhere: `--show KIND NUMBER` reads one again, with its
traceback.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from tests.fuzz.counts import unaccounted
from tests.fuzz.seeds import SEEDS
from tests.fuzz.worker import AT, SECONDS

MOST = ("peak_mib", "slowest_seconds")
"""Of the counts, those that do not add up."""
WORKER = ("-m", "tests.fuzz.worker")
PATIENCE = 2 * SECONDS + 20
"""Seconds that a process may stay at one input."""
AT_ONCE = 20_000
"""Inputs of one process."""
SHARES = {"databases": 2, "leaf folders": 2, "msgpack": 3, "plans": 1, "patterns": 3}
"""How many of the inputs are of a kind, beside the others, which count one."""


class Watched:
    """Runs workers over a range of inputs, and goes on behind the input at which one ends or hangs."""

    def __init__(self, kind, seed, folder, judged):
        self.kind, self.seed, self.folder, self.judged = kind, seed, folder, judged
        self.counts, self.findings, self.cpu, self.peak = Counter(), [], 0.0, 0
        self.slowest = (0.0, 0)

    def read(self, first, count):
        end = first + count
        while first < end:
            process, hung = self._run(first, end - first)
            *whole, _ = (
                (self.folder / "said").read_text().split("\n")
            )  # the last may be half of one
            told = {line["number"]: line for line in map(json.loads, whole)}
            if process.returncode != 0:
                first = self._ended(process, hung, told) + 1
            for line in told.values():
                self._take(line)
            if process.returncode == 0:
                return

    def _ended(self, process, hung, told):
        """The number of the input at which a process ended; what became of it is told, too."""
        number, _, is_judged = self._at()
        how = "does not end" if hung else f"ends its process with {process.returncode}"
        errors = (self.folder / "errors").read_text(errors="replace")[-1500:]
        if number is None:
            raise SystemExit(f"the worker of {self.kind} {how} before it begins: {errors}")
        nothing = {"number": number, "counts": {}, "findings": [], "cpu": 0.0, "peak_kib": 0}
        line = told.setdefault(number, nothing)
        if is_judged:
            line["counts"]["the judge does not end" if hung else "the judge ends its process"] = 1
        else:
            sort = "time" if hung else "crash"
            line["findings"].append({"kind": self.kind, "seed": self.seed, "number": number, "sort": sort,
                                     "said": f"{how}: {errors}", "where": ""})  # fmt: skip
            line["counts"] = {"inputs": 1, sort: 1}
        return number

    def _run(self, first, count):
        """A process that has ended, and whether it had to be ended."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        words = (self.kind, self.seed, first, count, self.judged, self.folder)
        with (
            (self.folder / "said").open("wb") as said,
            (self.folder / "errors").open("wb") as errors,
        ):
            process = subprocess.Popen(
                [sys.executable, *WORKER, *map(str, words)],
                stdout=said,
                stderr=errors,
            )
            return process, self._watch(process)

    def _watch(self, process):
        """True if the process had to be ended."""
        while process.poll() is None:
            time.sleep(0.2)
            _, since, _ = self._at()
            if since and time.time() - since > PATIENCE:
                process.kill()
                process.wait()
                return True
        return False

    def _at(self):
        place = self.folder / "at"
        content = place.read_bytes() if place.exists() else b""
        number, since, is_judged = (
            AT.unpack(content) if len(content) == AT.size else (None, 0, False)
        )
        return (number, since, is_judged) if since else (None, 0, False)

    def _take(self, line):
        self.counts.update(line["counts"])
        self.findings += line["findings"]
        self.cpu += line["cpu"]
        self.peak = max(self.peak, line["peak_kib"])
        self.slowest = max(self.slowest, (line["cpu"], line["number"]))


def show(kind, number, seed, folder):
    """Read one input again, here, and keep what is read."""
    from tests.fuzz.readers import READERS, leaves_of
    from tests.fuzz.worker import Worker

    place, file, content, _ = Worker(kind, seed, folder).input(number)
    file.write_bytes(content)
    _print(f"{place}: {file.name} is changed")
    _print(str(READERS.get(kind, leaves_of)(place)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("inputs", type=int, nargs="?", default=10_000)
    parser.add_argument("--kinds", nargs="*", default=list(SEEDS), choices=list(SEEDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument(
        "--judged",
        type=int,
        default=20_000,
        help="accepted inputs that others read, too, of each kind",
    )
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz-findings.jsonl"))
    parser.add_argument("--counts", type=Path, help="a JSON file to which the counts are added")
    parser.add_argument("--show", nargs=2, metavar=("KIND", "NUMBER"))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    memory = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
    folder = given.folder or Path(tempfile.mkdtemp(prefix="fuzz-", dir=memory))
    try:
        if given.show:
            show(given.show[0], int(given.show[1]), given.seed, folder)
            return 0
        return _campaign(given, folder)
    finally:
        if not given.show and not given.folder:
            shutil.rmtree(folder)


def _campaign(given, folder):
    whole = sum(SHARES.get(kind, 1) for kind in given.kinds)
    rows, found = {}, []
    for kind in given.kinds:
        count = given.inputs * SHARES.get(kind, 1) // whole
        began = time.time()
        watched = Watched(kind, given.seed, folder / kind.replace(" ", "-"), 0)
        for start in range(0, count, AT_ONCE):
            watched.judged = given.judged * min(AT_ONCE, count - start) // max(count, 1)
            watched.read(given.first + start, min(AT_ONCE, count - start))
        rows[kind] = watched
        found += watched.findings
        _say(kind, watched, time.time() - began)
        if any(unaccounted(watched.counts)):
            raise SystemExit(f"of {kind}, outcomes are lost: {unaccounted(watched.counts)}")
        given.findings.parent.mkdir(parents=True, exist_ok=True)
        with given.findings.open("a") as file:
            file.writelines(json.dumps(finding) + "\n" for finding in watched.findings)
        if given.counts:
            _add(given.counts, kind, watched)
    for one in _each_once(found):
        place = f"{one['kind']} {one['number']} (seed {one['seed']})"
        _print(f"{one['sort']}: {place}: {one['said'][:300]} {one['where']}")
    return 1 if found else 0


def _say(kind, watched, seconds):
    counts = watched.counts
    rate = counts["inputs"] / max(watched.cpu, 1e-9)
    more = ", ".join(
        f"{count} {what}" for what, count in sorted(counts.items()) if what != "inputs"
    )
    at_most = f"{watched.peak >> 10} MiB and {watched.slowest[0]:.1f} s (number {watched.slowest[1]}) at most"
    _print(
        f"{kind}: {counts['inputs']} in {seconds:.0f} s, {rate:.0f} in a second of CPU, {at_most}; {more}"
    )


def _print(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _add(place, kind, watched):
    """Counts add up, over all runs of one program: what another one did is no proof of this one."""
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short=12", "HEAD:surgery_cli"]
    program = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    known = json.loads(place.read_text()) if place.exists() else {}
    if known.get("program") != program:
        known = {"program": program, "kinds": {}}
    before = known["kinds"].get(kind, {})
    row = Counter({name: count for name, count in before.items() if name not in MOST})
    most = (watched.peak >> 10, round(watched.slowest[0], 1))
    most = {name: max(before.get(name, 0), value) for name, value in zip(MOST, most, strict=True)}
    known["kinds"][kind] = {**dict(sorted((row + watched.counts).items())), **most}
    known["date"] = datetime.now(UTC).date().isoformat()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(known, indent=1) + "\n")


def _each_once(findings):
    """One finding of every cause."""
    found = {}
    for finding in findings:
        cause = finding["where"] or finding["said"][:60]
        found.setdefault((finding["kind"], finding["sort"], cause), finding)
    return list(found.values())


if __name__ == "__main__":
    sys.exit(main())
