"""What the figures must reach, as ratios within one run."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from bucket import LATENCY
from rows import LOOP, ON_COMMON, ON_TENTH, ORBAX, SURGERY, Row

Figures = Callable[[str, str, str], float]
"""The median of a quantity of a contender of a row; KeyError if that was not measured."""

MB = 1e6
MIB = 2**20


@dataclass(frozen=True)
class Target:
    """``figure`` must be at least, or at most, ``limit``; both in ``unit``."""

    work: str
    figure: Callable[[Figures], float]
    limit: float
    unit: str = "×"
    at_least: bool = False


def _faster(row: str, other: str) -> Callable[[Figures], float]:
    return lambda of: of(row, other, "wall_seconds") / of(row, SURGERY, "wall_seconds")


def _slower(row: str, other: str) -> Callable[[Figures], float]:
    return lambda of: of(row, SURGERY, "wall_seconds") / of(row, other, "wall_seconds")


def _peak(row: str) -> Callable[[Figures], float]:
    return lambda of: of(row, SURGERY, "peak_bytes") / MB


def _seconds(row: str) -> Callable[[Figures], float]:
    return lambda of: of(row, SURGERY, "wall_seconds")


WITH_256MIB = (256 * MIB + 200 * MB) / MB


def targets(leaf_bytes: int) -> list[Target]:
    """Each figure that is promised for checkpoints of 1.6 GB on two cores."""

    def written(of: Figures) -> float:
        return of("leaf", SURGERY, "new_bytes") / leaf_bytes

    def tensor_bytes(row: str) -> Callable[[Figures], float]:
        return lambda of: of(row, SURGERY, "new_bytes") / leaf_bytes

    def bucket_bytes(way: str) -> Callable[[Figures], float]:
        return lambda of: of("bucket-leaf", SURGERY, way) / leaf_bytes

    def requests_over_files(of: Figures) -> float:
        files = of("bucket-leaf", SURGERY, "bucket_files")
        return of("bucket-leaf", SURGERY, "requests") / files

    def beyond_requests(of: Figures) -> float:
        wall = of("bucket-inspect", SURGERY, "wall_seconds")
        return wall - LATENCY * of("bucket-inspect", SURGERY, "requests")

    def diff_over_edit(of: Figures) -> float:
        return of("diff", SURGERY, "wall_seconds") / of("leaf", SURGERY, "wall_seconds")

    return [
        Target("one leaf: faster than the Orbax script", _faster("leaf", ORBAX), 15, at_least=True),
        Target("one leaf: peak memory", _peak("leaf"), 250, "MB"),
        Target("one leaf: new bytes over the leaf's", written, 1.05),
        Target("rename: new bytes over a leaf's", tensor_bytes("rename"), 0.05),
        Target("stack: new bytes over a leaf's", tensor_bytes("stack"), 0.05),
        Target("rename: over the same, a tenth the size", _slower("rename", ON_TENTH), 1.3),
        Target("graft: over the same, a tenth the size", _slower("graft", ON_TENTH), 1.3),
        Target(
            "cast: faster than the Orbax script", _faster("bfloat16", ORBAX), 2.5, at_least=True
        ),
        Target("cast: over the bare loop", _slower("bfloat16", LOOP), 1.6),
        Target("cast: peak memory with 256 MiB", _peak("bfloat16"), WITH_256MIB, "MB"),
        Target("average: faster than the script", _faster("average", ORBAX), 2.5, at_least=True),
        Target("average: peak memory with 256 MiB", _peak("average"), WITH_256MIB, "MB"),
        Target("huge checkpoint: time over one leaf", _slower("logical", ON_COMMON), 1.5),
        Target(
            "huge checkpoint: memory over one leaf",
            lambda of: (
                of("logical", SURGERY, "peak_bytes") / of("logical", ON_COMMON, "peak_bytes")
            ),
            1.5,
        ),
        Target("large leaf: peak memory with 512 MiB", _peak("large"), 800, "MB"),
        Target(
            "looks: peak memory with 128 MiB", _peak("looks"), (128 * MIB + 150 * MB) / MB, "MB"
        ),
        Target(
            "reshard: faster than restore and save", _faster("reshard", ORBAX), 2, at_least=True
        ),
        Target("reshard: peak memory with 256 MiB", _peak("reshard"), WITH_256MIB, "MB"),
        Target("conversion: faster than the script", _faster("scan", ORBAX), 2, at_least=True),
        Target("conversion: peak memory with 256 MiB", _peak("scan"), WITH_256MIB, "MB"),
        Target("the way back: faster than the script", _faster("unscan", ORBAX), 2, at_least=True),
        Target("the way back: peak memory with 256 MiB", _peak("unscan"), WITH_256MIB, "MB"),
        Target("large leaf resharded: peak memory", _peak("large-reshard"), 800, "MB"),
        Target("many leaves: inspect", _seconds("leaves-inspect"), 5, "s"),
        Target("many leaves: plan", _seconds("leaves-plan"), 5, "s"),
        Target("many leaves: one edited", _seconds("leaves-edit"), 5, "s"),
        Target("diff of one edited leaf: over the edit", diff_over_edit, 1.5),
        Target(
            "gs:// one leaf: faster than the Orbax script",
            _faster("bucket-leaf", ORBAX),
            10,
            at_least=True,
        ),
        Target("gs:// one leaf: bytes down over the leaf's", bucket_bytes("down_bytes"), 1.05),
        Target("gs:// one leaf: bytes up over the leaf's", bucket_bytes("up_bytes"), 1.05),
        Target("gs:// one leaf: requests over files", requests_over_files, 8, ""),
        *(
            target
            for what, row in (
                ("cast", "bucket-bfloat16"),
                ("cast of twice the size", "bucket-bfloat16-twice"),
            )
            for target in (
                Target(
                    f"gs:// {what}: faster than the Orbax script",
                    _faster(row, ORBAX),
                    2,
                    at_least=True,
                ),
                Target(f"gs:// {what}: peak memory with 256 MiB", _peak(row), WITH_256MIB, "MB"),
            )
        ),
        Target("gs:// inspect: beyond its own requests", beyond_requests, 3, "s"),
        Target(
            "gs:// inspect: requests", lambda of: of("bucket-inspect", SURGERY, "requests"), 50, ""
        ),
    ]


def figures_of(measured: list[Row]) -> Figures:
    found = {(row.key, c.name): c.runs for row in measured for c in row.contenders}

    def figure(row: str, contender: str, quantity: str) -> float:
        return statistics.median(getattr(run, quantity) for run in found[row, contender])

    return figure


def print_targets(measured: list[Row], leaf_bytes: int) -> None:
    """Every target whose rows were measured: what it must reach, and whether it does."""
    figures = figures_of(measured)
    lines = []
    for target in targets(leaf_bytes):
        try:
            figure = target.figure(figures)
        except KeyError:
            continue
        is_reached = figure >= target.limit if target.at_least else figure <= target.limit
        sign = "≥" if target.at_least else "≤"
        limit = f"{sign} {target.limit:g} {target.unit}"
        lines.append(f"  {target.work:42}{figure:9.2f}   {limit:12}{'' if is_reached else 'NO'}")
    if lines:
        print(f"\n{'what must be reached with --size 1.6GB':44}{'figure':>9}", *lines, sep="\n")
