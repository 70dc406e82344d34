"""What ``diff`` prints."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli.document import Case, Document, Suite
from surgery_cli.proof.record_parts import Assumed
from surgery_cli.reports.findings import of_step
from surgery_cli.words.quantities import number_text


class Change(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A leaf that differs. ``max_abs`` and ``max_rel`` compare values where shapes agree; None otherwise."""

    path: str
    what: str
    """``values``, ``shape``, ``dtype``, ``kind``, ``container``."""
    a: str
    b: str
    differing: int | None = None
    size: int | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    where: tuple[int, ...] | None = None
    """Index of the largest absolute difference."""


class Difference(Document, kw_only=True, frozen=True):
    """What ``diff`` prints."""

    a: str
    b: str
    chosen_a: str
    """A sentence that says what was opened of ``a``, and why."""
    chosen_b: str
    step_a: int | None
    step_b: int | None
    named_step_a: int | UnsetType = UNSET
    """The step of a root, if the command named one."""
    named_step_b: int | UnsetType = UNSET
    address_a: str
    """Text that opens what was compared, whatever is saved meanwhile: of a root `ROOT@N`."""
    address_b: str
    only_in_a: list[str]
    only_in_b: list[str]
    changed: list[Change]
    equal: int
    """Leaves that agree."""
    equal_by_reference: int
    """Of these, how many refer to the same stored bytes, so that no value was read."""
    structure_only: bool
    rtol: float = 0.0
    atol: float = 0.0
    """Values count as equal that are no more than ``atol + rtol * magnitude`` apart."""
    not_compared: list[str] = []
    """Items of either side that are no trees of leaves, or were not chosen; none where patterns say what to compare."""
    items_only_in_a: list[str] = []
    """Items that the step of the other side does not have. The leaves of a tree among them are only in this one; the
    others make no difference in what is compared."""
    items_only_in_b: list[str] = []
    items_apart: list[str] = []
    """Where no leaf is in both, and paths begin with the names of items: these, by their own paths, by which they can
    be compared with any other tree."""
    agreeing: list[str] = []
    """The leaves that agree."""
    assumptions: list[Assumed] = []
    """That an older step of a root is meant, as none was named and the newest is unfinished; `--quiet` says it, too."""
    not_named: int | UnsetType = UNSET
    """How many leaves of the two no pattern names: the other counts leave them out. Left out without patterns."""
    spellings: dict[str, str] | UnsetType = UNSET
    """The keys of leaves with odd names, by these: a slash in one is `%2F`, a percent sign `%25`, all else as it is."""

    def __bool__(self) -> bool:
        raise TypeError(
            "a difference is neither true nor false: ask `.changed`, `.only_in_a` and `.only_in_b`"
        )

    def _not_compared(self, item: str) -> str:
        sides = {"a": self.items_only_in_a, "b": self.items_only_in_b}
        of = next((side for side, items in sides.items() if item in items), "")
        return f"not compared: only {of} has it" if of else "not compared"

    def suite(self) -> Suite:
        cases = [
            *(Case(name=p or ".", outcome="failed", what="only in a") for p in self.only_in_a),
            *(Case(name=p or ".", outcome="failed", what="only in b") for p in self.only_in_b),
            *map(_case_of_change, self.changed),
            *(Case(name=path or ".") for path in self.agreeing),
            *(
                Case(name=p, outcome="skipped", what=self._not_compared(p))
                for p in self.not_compared
            ),
        ]
        sides = of_step(self.a, self.named_step_a), of_step(self.b, self.named_step_b)
        judged = f"{self.address_a} {self.address_b}"
        return Suite("diff", " ".join(sides), cases, judged=judged)


def _case_of_change(change: Change) -> Case:
    count = ""
    if change.differing is not None and change.size is not None:
        count = f", {change.differing:,} of {change.size:,}"
    largest = f", by up to {number_text(change.max_abs)}" if change.max_abs is not None else ""
    return Case(
        name=change.path or ".",
        outcome="failed",
        what=f"{change.what} differ{'' if change.what == 'values' else 's'}{count}{largest}",
        details=[f"a {change.a}", f"b {change.b}"],
    )
