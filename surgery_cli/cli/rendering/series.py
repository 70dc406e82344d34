"""Thousands of leaves on a page: those of which the same is said, and whose paths differ in numbers, are one row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from surgery_cli.cli.rendering import statistics
from surgery_cli.console.page import Cell, Page
from surgery_cli.reports import LeafRow
from surgery_cli.tree.spelling import decode, shown, typed
from surgery_cli.words.quantities import leaves_text
from surgery_cli.words.series import Series, T, in_series

MOST_ROWS: Final = 40
"""More than these are said in series, and of more series than these the first."""


def rows_of(
    members: Sequence[T],
    named: Callable[[T], str],
    said: Callable[[T], Hashable] = lambda _: None,
    *,
    verbose: bool,
) -> list[Series]:
    """A series for each member, as long as they are few or all are asked for; else those that there are."""
    if verbose or len(members) <= MOST_ROWS:
        return [Series(named(member), [member]) for member in members]
    return in_series(members, named, said)


def render_paths(paths: Sequence[str], page: Page, *, verbose: bool, indent: int) -> None:
    """The paths of leaves, a line each, or their series with how many leaves each is."""
    found = rows_of(paths, lambda path: path or ".", verbose=verbose)
    shown = found if verbose else found[:MOST_ROWS]
    page.table([(one.name, count_of(one)) for one in shown], indent=indent)
    render_rest(page, found, shown, indent=indent)


def count_of(one: Series) -> Cell:
    """How many leaves a series is; nothing for a single one."""
    count = len(one.members)
    return Cell(leaves_text(count) if count > 1 else "", "faint", right=True)


def render_rest(
    page: Page, found: Sequence[Series], shown: Sequence[Series], *, indent: int
) -> None:
    """What is not shown of the rows, and how it can be."""
    left = sum(len(one.members) for one in found[len(shown) :])
    if left:
        page.rest(left, indent=indent)
    elif any(len(one.members) > 1 for one in found):
        page.hint("in series: `--verbose` lists single leaves", indent=indent)


class LeafSeries(NamedTuple):
    """Leaves that `inspect` says in one row; mostly a single one. ``exact`` is the pattern that names just them."""

    exact: str
    rows: list[LeafRow]

    @property
    def name(self) -> str:
        """The pattern as the paths of its leaves are shown."""
        if len(self.rows) == 1:
            return self.first.path
        return self.exact if _exact(self.first) == self.first.path else shown(self.exact)

    @property
    def first(self) -> LeafRow:
        return self.rows[0]

    @property
    def bytes(self) -> int:
        return sum(row.bytes for row in self.rows)


def single(rows: Iterable[LeafRow]) -> list[LeafSeries]:
    """Each leaf in a row of its own."""
    return [LeafSeries(_exact(row), [row]) for row in rows]


def together(rows: Iterable[LeafRow]) -> list[LeafSeries]:
    """Leaves of one series, type, role and state of values as one row: what is wrong with one is never another's."""
    found = in_series(rows, _exact, _said)
    return [LeafSeries(one.name, one.members) for one in found]


def _exact(row: LeafRow) -> str:
    keys = [decode(key) for key in row.spelling.split("/")]
    return typed(keys, is_exact=True) if row.spelling else row.path


def _said(row: LeafRow) -> Hashable:
    marks = statistics.marks(row, row.statistics) if row.statistics else ()
    return (row.type_text, row.dtype, row.shape, row.slot, row.clock, row.hyperparameter, *marks)
