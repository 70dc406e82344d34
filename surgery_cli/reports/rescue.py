"""The document of `rescue`."""

from __future__ import annotations

from typing import Literal

import msgspec

from surgery_cli.document import Noted
from surgery_cli.salvage.states import Assumption, LostItem, Proof, Route, State


class SavedRow(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A leaf that a broken checkpoint had: ``state`` is ``whole``, ``partly`` or ``lost``.

    ``share`` of its elements is there; ``missing`` are blocks of the others, as slices of each axis. ``proof``:
    ``digest`` on record, ``checksum`` of every byte, or that it ``decodes`` and no more. ``filled_from`` is the
    checkpoint that gives what is missing, in the result.
    """

    path: str
    state: State
    type_text: str = ""
    share: float = 1.0
    missing: list[str] = []
    proof: Proof | Literal[""] = ""
    routes: list[Route] = []
    filled_from: str = ""
    filled_type: str = ""
    """Shape and dtype there, if nothing that is left says what they were."""
    why: str = ""
    digest: str = ""
    assumes: Assumption | Literal[""] = ""
    """What must be so of what is damaged for a whole leaf to be what was saved; nothing in it shows that."""
    described_by: str = ""
    """Whose description stands for its own, which is lost: a leaf's, or that in another checkpoint."""


class Rescued(Noted, kw_only=True, frozen=True):
    """What ``rescue`` found, and wrote if there is a ``destination``."""

    broken: str
    destination: str | None = None
    destination_step: str | None = None
    """What the step in ``destination`` is called, if that is a run: it is one if a run was named."""
    structure: str
    """Where the names of the leaves come from."""
    structure_lacks: list[str] = []
    """What of the trees that does not say: what stands in the result there, nobody knows."""
    leaves: list[SavedRow]
    whole: int
    partly: int
    lost: int
    lost_items: list[LostItem] = []
    """What is lost as a whole, and whose leaves, if it was a tree, the counts leave out."""
    written: int = 0
    """Leaves of the result."""
    record: str | None = None

    @property
    def is_whole(self) -> bool:
        """True if every leaf is there and the tree around them is known, and nothing must be assumed for that."""
        is_lacking = self.partly or self.lost or self.lost_items or self.structure_lacks
        return not (is_lacking or any(row.assumes for row in self.leaves))
