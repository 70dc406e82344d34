"""What is said of what was found: on which way, how much of it is left, and what proves it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, TypeAlias

import msgspec

from surgery_cli.words.lists import listed
from surgery_cli.words.quantities import leaves_text

Route: TypeAlias = Literal[
    "manifest",
    "process manifest",
    "manifest not renamed",
    "earlier version",
    "scan for nodes",
    "leaf folder",
    "file not renamed",
]
"""How a value was found, best first. What a save had not renamed yet is as whole as its bytes are."""

State: TypeAlias = Literal["whole", "partly", "lost"]
"""How much of a leaf is left."""

Proof: TypeAlias = Literal["digest", "checksum", "decodes"]
"""What shows that the values of a leaf are those that were saved; that they decode is the least."""

Assumption: TypeAlias = Literal[
    "bytes are missing at its end alone",
    "bytes were added at its end alone",
    "nothing before the damage is displaced",
    "what stands behind the damage has its own names",
    "they have the shape and dtype of the leaf that describes them",
    "something else was saved there after its record was written",
]
"""What must be so of what is damaged for a leaf without a checksum to be what was saved; nothing in it shows that."""


class LostItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An item, or another file of the step, of which nothing can be had: it is no leaf, and not counted as one."""

    name: str
    why: str
    was_tree: bool = False
    """It was a tree of leaves, or nothing says that it was not."""
    leaves: int | None = None
    """How many leaves it had, where something tells."""
    leaves_told_by: str = ""
    """What does: the record of the step, or another step of the run, in which it has so many."""

    @property
    def count_text(self) -> str:
        """How many leaves went with it, in words.

        >>> LostItem("state", "it is empty", True, 16, "step 20").count_text
        '16 leaves in step 20'
        """
        if self.leaves is None:
            return "how many leaves it had is not known"
        return f"{leaves_text(self.leaves)} in {self.leaves_told_by}"

    def __str__(self) -> str:
        return f"'{self.name}'" if self.name else "the tree"


def said_lost(items: Collection[LostItem]) -> str:
    """That these are lost, and how many leaves with each.

    >>> said_lost([LostItem("state", "", was_tree=True), LostItem("about", "")])
    "'state' (how many leaves it had is not known) and 'about' are lost as a whole"
    """
    said = (f"{one}" + f" ({one.count_text})" * one.was_tree for one in items)
    are = "is" if len(items) == 1 else "are"
    return f"{listed(said, 4, word='and')} {are} lost as a whole"
