"""Runs struck at random for hours: `make soak HOURS=1`. Stops by itself, and says how to repeat what failed."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"  # before JAX is imported

from tests.faults.commands import COMPILER, Commands
from tests.faults.machine import Case, Verdict
from tests.faults.rows import ROWS
from tests.faults.sections import SECTIONS
from tests.faults.tally import COUNTS, Tally

MEMORY = Path("/dev/shm")


def main() -> int:
    asked = _asked(sys.argv[1:])
    if COMPILER is None:
        sys.stderr.write("there is no C compiler here, which the faults need\n")
        return 2
    where = asked.where or (MEMORY if MEMORY.is_dir() else None)
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=where))
    try:
        with Commands(folder) as commands:
            if asked.again:
                return _again(asked.again, folder, commands)
            return _soak(asked, folder, commands)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _asked(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--where", type=Path, help="a folder for the runs; in memory if left out")
    parser.add_argument("--counts", type=Path, default=COUNTS, help="the file to add the counts to")
    parser.add_argument("--again", nargs=3, metavar=("SECTION", "ROW", "WORDS"), help="one trial")
    return parser.parse_args(words)


def _again(words: Sequence[str], folder: Path, commands: Commands) -> int:
    section, row, trial = words
    verdicts = SECTIONS[section].strike(Case(ROWS[row], folder, commands), trial)
    for verdict in verdicts:
        sys.stdout.write(f"{verdict.state}, exit {verdict.ended.code}, left {verdict.left}\n")
        sys.stdout.write(verdict.ended.said + _complaints(verdict))
    return int(any(verdict.complaints for verdict in verdicts))


def _soak(asked: argparse.Namespace, folder: Path, commands: Commands) -> int:
    chance, tally, cases, begun = Random(asked.seed), Tally(), {}, time.monotonic()
    names = asked.sections.split(",")
    weights = [SECTIONS[name].weight for name in names]
    failed = 0
    sys.stdout.write(f"seed {asked.seed}\n")
    while time.monotonic() - begun < asked.hours * 3600:
        (name,) = chance.choices(names, weights)
        row = ROWS[chance.choice(asked.rows.split(","))]
        if row.name not in cases:
            cases[row.name] = Case(row, folder, commands)
        words = SECTIONS[name].draw(cases[row.name], chance)
        for verdict in SECTIONS[name].strike(cases[row.name], words):
            tally.add(name, verdict)
            if verdict.complaints:
                failed += 1
                repeat = f"python -m tests.faults --again {name} {row.name} '{verdict.what}'"
                sys.stdout.write(f"{repeat}\n{_complaints(verdict)}{verdict.ended.said}\n")
                sys.stdout.flush()
    tally.save(asked.counts, time.monotonic() - begun)
    sys.stdout.write(f"{tally.table()}\n")
    return int(failed > 0)


def _complaints(verdict: Verdict) -> str:
    return "".join(f"  {promise}: {how}\n" for promise, how in verdict.complaints)


if __name__ == "__main__":
    sys.exit(main())
