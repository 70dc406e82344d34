"""What an edit costs: surgery beside the recipe with Orbax and beside `cp -r`, as whole processes, in one run.

`python bench.py [--size 1.6GB] [--repeats 3] [--json FILE]`. Contenders alternate; medians are printed.
"""

# This process stays small on purpose (no NumPy): Linux counts the memory that a child had between fork and exec, which
# is its parent's, towards the child's peak.

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).resolve().parent
LEAF_BYTES = 1920 * 2048 * 4
LEAVES_PER_LAYER = 3  # the kernel, mu, nu
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
SURGERY, RECIPE, COPY = "surgery", "restore-edit-save", "cp -r"
VERSIONS = ("orbax-checkpoint", "tensorstore", "jax", "numpy")


@dataclass(frozen=True)
class Measurement:
    """One process, from its start to its end."""

    wall_seconds: float
    cpu_seconds: float
    """User and system time, all threads."""
    peak_bytes: int
    written_bytes: int
    """What the kernel counted as written to storage; 0 on a filesystem that counts nothing, such as tmpfs."""
    new_bytes: int
    """Sizes of the destination's files that are not links to the source's."""


@dataclass(frozen=True)
class Contender:
    """One way to get from the source to the destination; ``command`` takes both."""

    name: str
    command: Callable[[Path, Path], list[str]]
    runs: list[Measurement] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """One task, and who takes part. ``edited`` are the dotted names of the leaves that the task changes."""

    name: str
    edited: tuple[str, ...]
    contenders: tuple[Contender, ...]


def _surgery(*options: str) -> Contender:
    def command(source: Path, destination: Path) -> list[str]:
        edit = ["rescale", str(source), str(destination), "params/layer_0/kernel", "--by", "0.5"]
        return [sys.executable, "-m", "surgery_cli", *edit, "--quiet", *options]

    return Contender(SURGERY, command)


def _recipe(*options: str) -> Contender:
    def command(source: Path, destination: Path) -> list[str]:
        edit = [str(source), str(destination), "layer_0/kernel", "--by", "0.5"]
        return [sys.executable, str(HERE / "recipe.py"), *edit, *options]

    return Contender(RECIPE, command)


def _copy() -> Contender:
    return Contender(COPY, lambda source, destination: ["cp", "-r", str(source), str(destination)])


def rows() -> list[Row]:
    """The table: a new row or contender is a line here."""
    kernel, adam = "params.layer_0.kernel", "opt_state.0.{}.layer_0.kernel"
    return [
        Row(
            "one leaf",
            (kernel,),
            (_surgery("--optimizer", "keep"), _recipe(), _copy()),
        ),
        Row(
            "one leaf, its moments follow",
            (kernel, adam.format("mu"), adam.format("nu")),
            (_surgery("--optimizer", "transform"), _recipe("--moments"), _copy()),
        ),
    ]


def measure(command: list[str], source: Path, destination: Path) -> Measurement:
    """Run ``command`` to its end; exits if it fails, with what it printed."""
    os.sync()  # what the previous contender left to be written is not this one's burden
    with (destination.parent / "log").open("w+b") as log:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=HERE.parent)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wall = time.perf_counter() - start
        counters = Path(f"/proc/{process.pid}/io").read_text()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            log.seek(0)
            sys.exit(f"{' '.join(command)}\n{log.read().decode()}exit code {process.returncode}")
    written = re.search(r"^write_bytes: (\d+)", counters, re.MULTILINE)
    assert written is not None
    return Measurement(
        wall_seconds=wall,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
        written_bytes=int(written[1]),
        new_bytes=_new_bytes(source, destination),
    )


def _files(directory: Path) -> dict[tuple[int, int], int]:
    """Sizes of the files below ``directory``, by device and inode."""
    stats = (file.stat() for file in directory.rglob("*") if file.is_file())
    return {(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}


def _new_bytes(source: Path, destination: Path) -> int:
    old = _files(source)
    return sum(size for inode, size in _files(destination).items() if inode not in old)


def check_same(a: Path, b: Path, leaves: tuple[str, ...]) -> None:
    """Exit if two contenders did not do the same task."""
    command = [sys.executable, str(HERE / "checkpoint.py"), "same", str(a), str(b), *leaves]
    if subprocess.run(command, check=False).returncode:
        sys.exit("the contenders disagree on the result")


def run(row: Row, source: Path, scratch: Path, repeats: int) -> None:
    """Measure every contender of ``row``, alternating, and hold the first results against each other."""
    for repeat in range(repeats):
        results = {}
        for number, contender in enumerate(row.contenders):
            destination = scratch / f"result_{number}"
            command = contender.command(source, destination)
            contender.runs.append(measure(command, source, destination))
            results[contender.name] = destination
        if repeat == 0:
            check_same(results[SURGERY], results[RECIPE], row.edited)
        for destination in results.values():
            shutil.rmtree(destination)


def median(contender: Contender, quantity: str) -> float:
    return statistics.median(getattr(run, quantity) for run in contender.runs)


def print_table(measured: list[Row]) -> None:
    """Medians, and how many times surgery's wall time the others took."""
    head = f"{'':19}{'wall s':>9}{'× surgery':>11}{'CPU s':>9}{'peak MB':>10}{'written MB':>12}{'new MB':>10}"
    for row in measured:
        base = median(next(c for c in row.contenders if c.name == SURGERY), "wall_seconds")
        print(f"\n{row.name} ({len(row.edited)} × {LEAF_BYTES / 1e6:.1f} MB edited)\n{head}")
        for contender in row.contenders:
            wall, cpu = median(contender, "wall_seconds"), median(contender, "cpu_seconds")
            peak, written, new = (
                median(contender, quantity) / 1e6
                for quantity in ("peak_bytes", "written_bytes", "new_bytes")
            )
            print(
                f"{contender.name:19}{wall:9.2f}{wall / base:11.1f}{cpu:9.2f}{peak:10.0f}{written:12.1f}{new:10.1f}"
            )


def as_document(measured: list[Row], source_bytes: int) -> dict[str, object]:
    return {
        "source_bytes": source_bytes,
        "leaf_bytes": LEAF_BYTES,
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in VERSIONS},
        "rows": [
            {
                "name": row.name,
                "edited_bytes": len(row.edited) * LEAF_BYTES,
                "contenders": {c.name: [asdict(run) for run in c.runs] for c in row.contenders},
            }
            for row in measured
        ],
    }


def size_in_bytes(text: str) -> int:
    """``1.6GB`` as a number of bytes."""
    match = re.fullmatch(r"([0-9.]+)(kB|MB|GB)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 1.6GB or 50MB")
    return int(float(match[1]) * UNITS[match[2]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=size_in_bytes, default="1.6GB", help="of the checkpoint")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write every single measurement here")
    parser.add_argument("--scratch", type=Path, default=HERE.parent / "build" / "bench")
    arguments = parser.parse_args()

    layers = max(1, round(arguments.size / (LEAF_BYTES * LEAVES_PER_LAYER)))
    source_bytes = layers * LEAF_BYTES * LEAVES_PER_LAYER
    scratch = arguments.scratch
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    if shutil.disk_usage(scratch).free < 4 * source_bytes:
        sys.exit(f'"{scratch}" has no room for four checkpoints of {source_bytes / 1e6:.0f} MB')
    try:
        source = scratch / "source"
        build = [sys.executable, str(HERE / "checkpoint.py"), "build", str(source)]
        subprocess.run([*build, "--layers", str(layers)], check=True)
        print(
            f"{source_bytes / 1e6:.0f} MB, {layers * LEAVES_PER_LAYER} leaves, {os.cpu_count()} CPUs, "
            f"median of {arguments.repeats}"
        )
        measured = rows()
        for row in measured:
            run(row, source, scratch, arguments.repeats)
        print_table(measured)
    finally:
        shutil.rmtree(scratch)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(as_document(measured, source_bytes), indent=2) + "\n")


if __name__ == "__main__":
    main()
