"""What merges of ten checkpoints cost: surgery beside mergekit and a NumPy script, in one run.

`python peers.py [--python ENVIRONMENT/bin/python] [--size 300MB|tiny] [--members 10] [--repeats 3] [--json FILE]`. The
other Python has mergekit and torch; without it, mergekit takes no part. All start from the same weights: mergekit and
the script from safetensors, surgery from Orbax checkpoints that it made of them. Every contender is a process of its
own; they alternate, and the results are held against each other.
"""

# This process stays small on purpose (no NumPy): Linux counts the memory that a child had between fork and exec, which
# is its parent's, towards the child's peak.

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import measure, print_row
from rows import HERE, SURGERY, Contender, Row
from sizes import size_in_bytes
from targets import figures_of

MERGEKIT, SCRIPT = "mergekit", "NumPy script"
MERGES = ("linear", "ties", "slerp")
MEMORY = ("--memory", "256MiB")


@dataclass(frozen=True)
class Result:
    """Where a merge comes out."""

    destination: Path


class Models:
    """A base and its fine-tunes: safetensors in ``base`` and ``tune_N``, the same as Orbax checkpoints in ``orbax``."""

    def __init__(self, scratch: Path, members: int) -> None:
        self.scratch, self.destination = scratch, scratch / "destination"
        self.names = ["base", *(f"tune_{n}" for n in range(1, members))]
        self.orbax = scratch / "orbax"

    def members_of(self, merge: str) -> list[str]:
        return self.names[:2] if merge == "slerp" else self.names

    def build(self, size: int) -> None:
        for seed, name in enumerate(self.names):
            made = [str(HERE / "peer_models.py"), "make", str(self.scratch / name)]
            subprocess.run([sys.executable, *made, str(size), str(seed)], check=True)
            source = self.scratch / name / "model.safetensors"
            copy = ["keep", str(source), str(self.orbax / name), "**", "--quiet"]
            self.orbax.mkdir(exist_ok=True)
            subprocess.run(
                [sys.executable, "-m", "surgery_cli", *copy], check=True, cwd=HERE.parent
            )


def rows(models: Models, python: Path | None) -> Iterator[Row]:
    """One for each merge."""
    for merge in MERGES:
        first, *others = models.members_of(merge)
        words = {
            "linear": ["average"],
            "ties": ["ties", "--density", "0.5", "--weights", ",".join(["1"] * len(others))],
            "slerp": ["interpolate", "--t", "0.3", "--method", "slerp"],
        }[merge]
        edit = [words[0], str(models.orbax / first), str(models.destination), "**", *words[1:]]
        edit += [word for name in others for word in ("--with", str(models.orbax / name))]
        ours = [sys.executable, "-m", "surgery_cli", *edit, *MEMORY, "--quiet"]
        task = [
            merge,
            str(models.destination),
            *(str(models.scratch / n) for n in (first, *others)),
        ]
        lines = {SURGERY: ours, SCRIPT: [sys.executable, str(HERE / "peer_numpy.py"), *task]}
        if python is not None:
            lines[MERGEKIT] = [str(python.absolute()), str(HERE / "peer_mergekit.py"), *task]
        yield Row(
            merge,
            f"{merge} of {len(others) + 1}",
            tuple(Contender(name, lambda _, line=line: line) for name, line in lines.items()),
        )


def run(row: Row, models: Models, repeats: int) -> None:
    """Measure all, in turns, and hold the first results against each other."""
    for repeat in range(repeats):
        results = {}
        for contender in row.contenders:
            contender.runs.append(
                measure(contender.command(models), Result(models.destination), (0,))
            )
            if repeat == 0:
                results[contender.name] = models.destination.with_name(f"of {contender.name}")
                models.destination.rename(results[contender.name])
            shutil.rmtree(models.destination, ignore_errors=True)
        for name, result in results.items():
            if name != SURGERY:
                same = [str(HERE / "peer_models.py"), "same", str(results[SURGERY]), str(result)]
                if subprocess.run([sys.executable, *same], check=False).returncode:
                    sys.exit(f"{row.name}: surgery and the {name} disagree")
        for result in results.values():
            shutil.rmtree(result)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", type=Path, help="the one that has mergekit")
    parser.add_argument("--size", type=size_in_bytes, default="300MB", help="of one checkpoint")
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write every single measurement here")
    parser.add_argument("--scratch", type=Path, default=HERE.parent / "build" / "peers")
    arguments = parser.parse_args()

    shutil.rmtree(arguments.scratch, ignore_errors=True)
    arguments.scratch.mkdir(parents=True)
    models = Models(arguments.scratch.resolve(), arguments.members)
    try:
        models.build(arguments.size)
        print(
            f"{arguments.size / 1e6:.0f} MB each, {os.cpu_count()} CPUs; median of {arguments.repeats}"
        )
        measured = list(rows(models, arguments.python))
        for row in measured:
            run(row, models, arguments.repeats)
            print_row(row)
        if arguments.python is not None:
            _print_targets(measured)
    finally:
        shutil.rmtree(arguments.scratch)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        document = {
            row.key: {c.name: [asdict(one) for one in c.runs] for c in row.contenders}
            for row in measured
        }
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


def _print_targets(measured: list[Row]) -> None:
    """What must be reached: mergekit's time, and a quarter of its memory."""
    figures = figures_of(measured)
    print("\nwhat must be reached, beside mergekit")
    for row in measured:
        ours, theirs = (
            [figures(row.key, who, what) for what in ("wall_seconds", "peak_bytes")]
            for who in (SURGERY, MERGEKIT)
        )
        wall, peak = (its / own for own, its in zip(ours, theirs, strict=True))
        verdict = "reached" if wall >= 1 and peak >= 4 else "MISSED"
        print(
            f"  {row.name}: {wall:.1f} × faster (≥ 1), a {peak:.1f}th of its memory (≥ 4): {verdict}"
        )


if __name__ == "__main__":
    main()
