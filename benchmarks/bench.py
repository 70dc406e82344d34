"""What edits and looks cost: surgery beside an Orbax script, `cp -r` and a bare TensorStore loop, in one run.

`python bench.py [--size 1.6GB|tiny] [--repeats 3] [--rows leaf,…] [--device gpu] [--json FILE] [--picture FILE]`. Every
contender is a process of its own; they alternate; medians are printed, and what must be reached. Results are held
against each other. With `--device`, surgery also takes part with its arithmetic there.
"""

# This process stays small on purpose (no NumPy): Linux counts the memory that a child had between fork and exec, which
# is its parent's, towards the child's peak.

import argparse
import compileall
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from bucket import Bucket
from rows import DESTINATION, HERE, SURGERY, Measurement, Places, Row, table
from sizes import Sizes, build, check_room, size_in_bytes
from targets import figures_of, print_targets

QUANTITIES = ("wall_seconds", "cpu_seconds", "peak_bytes", "written_bytes", "new_bytes")
ASKED = ("requests", "down_bytes", "up_bytes")
VERSIONS = ("orbax-checkpoint", "tensorstore", "jax", "numpy")


def measure(
    command: list[str], places: Places, codes: tuple[int, ...], bucket: Bucket | None = None
) -> Measurement:
    """Run ``command`` to its end; exits if it fails, with what it printed."""
    if bucket is not None:
        bucket.traffic()
    os.sync()  # what the previous contender left to be written is not this one's burden
    with (places.destination.parent / "log").open("w+b") as log:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=HERE.parent)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        wall = time.perf_counter() - start
        counters = Path(f"/proc/{process.pid}/io").read_text()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in codes:
            log.seek(0)
            sys.exit(f"{' '.join(command)}\n{log.read().decode()}exit code {process.returncode}")
    written = re.search(r"^write_bytes: (\d+)", counters, re.MULTILINE)
    assert written is not None
    return Measurement(
        wall_seconds=wall,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        peak_bytes=usage.ru_maxrss * 1024,
        written_bytes=int(written[1]),
        new_bytes=_new_bytes(places),
        **({} if bucket is None else bucket.traffic()),
    )


def _files(directory: Path) -> dict[tuple[int, int], int]:
    """Sizes of the files below ``directory``, by device and inode."""
    stats = (file.stat() for file in directory.rglob("*") if file.is_file())
    return {(stat.st_dev, stat.st_ino): stat.st_size for stat in stats}


def _new_bytes(places: Places) -> int:
    if not places.destination.exists():
        return 0
    others = [path for path in vars(places).values() if path != places.destination]
    old = {inode for path in others for inode in _files(path)}
    return sum(size for inode, size in _files(places.destination).items() if inode not in old)


def check_same(a: Path, b: Path, leaves: tuple[str, ...]) -> None:
    """Exit if two contenders did not do the same task."""
    command = [sys.executable, str(HERE / "checkpoint.py"), "same", str(a), str(b), *leaves]
    if subprocess.run(command, check=False).returncode:
        sys.exit("the contenders disagree on the result")


def run(row: Row, places: Places, repeats: int, bucket: Bucket | None = None) -> None:
    """Measure every contender of ``row``, there and back in turn, and hold the first results against each other.

    Who runs after whom matters: memory that another has just freed costs less to get.
    """
    there = bucket if row.bucket else None
    if there is not None:
        there.upload(getattr(places, row.bucket), row.bucket)
    for repeat in range(repeats):
        results: dict[str, Path] = {}
        for contender in row.contenders[:: -1 if repeat % 2 else 1]:
            codes = row.codes if contender.name == SURGERY else (0,)
            contender.runs.append(measure(contender.command(places), places, codes, there))
            if there is not None and row.writes:
                contender.runs[-1] = replace(
                    contender.runs[-1], bucket_files=there.files(row.bucket)
                )
                there.move(DESTINATION, places.destination)
            if row.writes and contender.is_same_task and repeat == 0:
                results[contender.name] = places.destination.with_name(f"of {contender.name}")
                places.destination.rename(results[contender.name])
            shutil.rmtree(places.destination, ignore_errors=True)
        for name, result in results.items():
            if row.compared and name != SURGERY and SURGERY in results:
                check_same(results[SURGERY], result, row.compared)
        for result in results.values():
            shutil.rmtree(result)
    if there is not None:
        there.delete(row.bucket)


def print_row(row: Row) -> None:
    """Medians, and how many times surgery's wall time the others took."""
    print(
        f"\n{row.name:30}{'wall s':>8}{'× surgery':>11}{'CPU s':>8}{'peak MB':>9}{'written MB':>12}{'new MB':>9}"
    )
    figures = figures_of([row])
    has_surgery = any(contender.name == SURGERY for contender in row.contenders)
    for contender in row.contenders:
        wall, cpu, *sizes = (figures(row.key, contender.name, name) for name in QUANTITIES)
        peak, written, new = (size / 1e6 for size in sizes)
        ratio = f"{wall / figures(row.key, SURGERY, 'wall_seconds'):.1f}" if has_surgery else ""
        print(
            f"  {contender.name:28}{wall:8.2f}{ratio:>11}{cpu:8.2f}{peak:9.0f}{written:12.1f}{new:9.1f}"
        )
        if row.bucket:
            asked, *moved = (figures(row.key, contender.name, name) for name in ASKED)
            down, up = (count / 1e6 for count in moved)
            print(f"    {asked:.0f} requests, {down:.1f} MB down, {up:.1f} MB up")
    sys.stdout.flush()


def as_document(measured: list[Row], repeats: int, sizes: Sizes) -> dict:
    return {
        "source_bytes": sizes.source_bytes,
        "leaf_bytes": sizes.leaf_bytes,
        "leaves": sizes.leaves,
        "repeats": repeats,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in VERSIONS},
        "rows": [
            {
                "key": row.key,
                "name": row.name,
                "contenders": {c.name: [asdict(run) for run in c.runs] for c in row.contenders},
            }
            for row in measured
        ],
    }


def draw(measured: list[Row], file: Path) -> None:
    """Bars of wall time, one panel with its own scale for each row."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        len(measured), squeeze=False, figsize=(8, 0.5 + 1.1 * len(measured))
    )
    for panel, row in zip(panels[:, 0], measured, strict=True):
        names = [contender.name for contender in row.contenders][::-1]
        walls = [figures_of([row])(row.key, name, "wall_seconds") for name in names]
        colours = ["#1f6f8b" if name.startswith(SURGERY) else "#b8c4c9" for name in names]
        panel.bar_label(panel.barh(names, walls, color=colours), fmt=" %.2f s", fontsize=8)
        panel.set_title(row.name, loc="left", fontsize=9)
        panel.margins(x=0.12)  # room for the labels
        panel.tick_params(labelsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[-1, 0].set_xlabel("seconds, median")
    figure.tight_layout()
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)


def _chosen(names: str | None, contenders: str | None, device: str | None) -> list[Row]:
    rows = table(device)
    wanted = names.split(",") if names else [row.key for row in rows]
    if unknown := set(wanted) - {row.key for row in rows}:
        sys.exit(f"no row is called {', '.join(sorted(unknown))}: {', '.join(r.key for r in rows)}")
    taking_part = contenders.split(",") if contenders else None
    return [
        Row(**{**vars(row), "contenders": tuple(
            c for c in row.contenders if taking_part is None or c.name in taking_part
        )})
        for row in rows
        if row.key in wanted
    ]  # fmt: skip


def _compile() -> None:
    """Compile surgery, as pip does when it installs, and let what others compile be kept from their first run on.

    An environment made by uv has nothing compiled: all would start a second or two later, each time, surgery not.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(HERE.parent / "build" / "compiled")
    compileall.compile_dir(HERE.parent / "surgery_cli", quiet=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=size_in_bytes, default="1.6GB", help="of the checkpoint")
    parser.add_argument("--leaves", type=int, default=100_000, help="of the one with many leaves")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", help="keys of rows, parted by commas")
    parser.add_argument("--contenders", help="names of contenders, parted by commas")
    parser.add_argument("--device", help="let surgery compute there too, e.g. gpu")
    parser.add_argument("--json", type=Path, help="also write every single measurement here")
    parser.add_argument("--picture", type=Path, help="also draw the medians (needs matplotlib)")
    parser.add_argument("--scratch", type=Path, default=HERE.parent / "build" / "bench")
    arguments = parser.parse_args()

    sizes = Sizes.of(arguments.size, arguments.leaves)
    measured = _chosen(arguments.rows, arguments.contenders, arguments.device)
    needed = {name for row in measured for name in row.needs}
    _compile()
    places = Places.below(arguments.scratch)
    shutil.rmtree(arguments.scratch, ignore_errors=True)
    arguments.scratch.mkdir(parents=True)
    check_room(arguments.scratch, needed, sizes)
    try:
        build(places, needed, sizes)
        print(sizes.text(arguments.repeats))
        with ExitStack() as stack:
            bucket = stack.enter_context(Bucket()) if any(r.bucket for r in measured) else None
            if bucket is not None:
                os.environ |= bucket.environment
            for row in measured:
                run(row, places, arguments.repeats, bucket)
                print_row(row)
        print_targets(measured, sizes.leaf_bytes)
    finally:
        shutil.rmtree(arguments.scratch)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        document = as_document(measured, arguments.repeats, sizes)
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    if arguments.picture:
        draw(measured, arguments.picture)


if __name__ == "__main__":
    main()
