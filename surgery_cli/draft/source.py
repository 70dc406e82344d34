"""Where leaves are taken from, as far as a draft is concerned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from surgery_cli.tree.specs import TreeSpec


class Source(Protocol):
    """Something that leaves can be taken from: a checkpoint or an array file."""

    @property
    def tree(self) -> TreeSpec: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def address(self) -> str:
        """Text that opens it again: an absolute path, `ROOT@N` for a step of a run."""

    @property
    def places(self) -> frozenset[str]:
        """The real paths of the trees in it: two names of one checkpoint have them in common."""

    @property
    def step(self) -> int | None:
        """The step that it is, of a run with several."""

    @property
    def steps(self) -> Mapping[int, str]:
        """The steps of the run that it belongs to, with the address of each."""

    @property
    def step_formats(self) -> Sequence[str]:
        """In which formats these are named: steps of several are of several runs."""

    @property
    def tells_kinds(self) -> bool:
        """False if all its arrays are NumPy's, as its format has no others: nothing says what they are elsewhere."""

    def beside(self, name: str) -> bytes | None:
        """What is in a small file of this name that stands with its arrays; None if there is none."""


def is_same_place(one: Source, other: Source) -> bool:
    """True if both are the very same trees on disk."""
    return bool(one.places) and one.places == other.places
