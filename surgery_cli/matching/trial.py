"""Whether values tell which leaf is which, and whether it is worth the time to read them all: smallest leaves first."""

from __future__ import annotations

from typing import Final

from surgery_cli.matching.contents import Holdings
from surgery_cli.matching.families import families_of
from surgery_cli.matching.pairing import Pairing, paired
from surgery_cli.matching.pairs import SAME, Leaves
from surgery_cli.matching.same_values import same_values
from surgery_cli.matching.subtrees import Former

FIRST_BYTES: Final = 64 << 20
"""So much is read before it is decided that the values of two trees have nothing in common."""


def paired_by_values(
    old: Leaves, new: Leaves, holdings: Holdings, former: Former = ()
) -> Pairing | None:
    """The pairs as values tell them; None where the two trees have none in common.

    Leaves that are fused on one side hold what no leaf of the other does: they are taken apart before that is said.
    """
    common = same_values(families_of(old), families_of(new), holdings, FIRST_BYTES)
    is_common = next(common, None) is not None
    if not is_common and holdings.read_bytes > FIRST_BYTES:
        return None
    found = paired(old, new, holdings, former)
    pairs, fused = (*found.pairs, *found.copies, *found.drops), (*found.splits, *found.joins)
    is_common |= any(SAME in pair.why for pair in pairs) or any(one.is_sure for one in fused)
    return found if is_common else None
