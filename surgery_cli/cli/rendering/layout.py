"""What hosts would read to restore, and what a change of layout makes of that."""

from __future__ import annotations

from collections.abc import Iterator

from surgery_cli.console.page import Cell, Page, Row
from surgery_cli.reports import HostReads, ReadLeaf, Resharded
from surgery_cli.words.quantities import byte_text, counted, leaves_text

_MOST_ROWS = 5


def render_reads(reads: HostReads, page: Page) -> None:
    """The bytes of all hosts in a few lines, and the leaves of which most is read for nothing."""
    page.line(Cell("read to restore", "strong"), f" on {_where(reads)}")
    page.line(_sentence(reads), indent=2)
    if reads.is_estimate:
        page.line(
            Cell(
                "some sizes of chunks are estimates: they stand in the indices of shards", "faint"
            ),
            indent=2,
        )
    if reads.worst:
        page.line()
        shown = min(len(reads.worst), _MOST_ROWS)
        if shown < reads.wasteful:
            page.line(
                f"the worst {shown} of {leaves_text(reads.wasteful)} that are read for nothing or again:",
                indent=2,
            )
        page.table(
            _rows(reads.worst),
            indent=2,
            header=["leaf", "split as", "chunks", "read", "of it for nothing"],
            dispensable={2: "chunks", 1: "split as"},
        )


def render_resharded(found: Resharded, page: Page) -> None:
    """How many leaves change, and what hosts read before and after."""
    page.line(
        Cell("reshard", "strong"),
        f": {leaves_text(found.rewritten)} in other chunks, {found.relabelled:,} with another sharding only,"
        f" {found.as_they_are:,} as they are; {counted(found.replicated, 'array')} replicated",
        indent=2,
    )
    if found.before is not None and found.after is not None:
        page.line(f"read to restore on {_where(found.after)}:", indent=2)
        page.line(f"before  {_sentence(found.before)}", indent=4)
        page.line(f"after   {_sentence(found.after)} (estimated)", indent=4)


def _where(reads: HostReads) -> str:
    each = counted(reads.devices_per_host, "device")
    others = f" ({leaves_text(reads.elsewhere)} on other meshes)" if reads.elsewhere else ""
    return f"the mesh {reads.mesh}{others}, {counted(reads.hosts, 'host')} with {each} each"


def _sentence(reads: HostReads) -> str:
    most, least = byte_text(reads.most_bytes), byte_text(reads.least_bytes)
    each = f"{most} a host" if most == least else f"{least} to {most} a host"
    return (
        f"{byte_text(reads.read_bytes)} by all hosts, {each}, of {byte_text(reads.stored_bytes)} in"
        f" {counted(reads.chunks, 'chunk')}: {byte_text(reads.again_bytes)} read again,"
        f" {byte_text(reads.unused_bytes)} for nothing"
    )


def _rows(worst: list[ReadLeaf]) -> Iterator[Row]:
    for leaf in worst[:_MOST_ROWS]:
        shape = "×".join(map(str, leaf.chunk_shape))
        times = leaf.read_bytes / leaf.stored_bytes if leaf.stored_bytes else 0
        yield (
            Cell(leaf.path),
            Cell(f"{leaf.partition} over {leaf.mesh}" if leaf.mesh else leaf.partition),
            Cell(f"{leaf.chunks:,} of {shape}" if shape else "1", right=True),
            Cell(f"{byte_text(leaf.read_bytes)} ({times:.3g} ×)", right=True),
            Cell(byte_text(leaf.unused_bytes), right=True),
        )
