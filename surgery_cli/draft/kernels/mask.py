"""Values where a mask lets them be, and one number elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from surgery_cli.draft.kernel import Kernel, Kit, Place
from surgery_cli.errors import ValueRefusal


class Masked(Kernel, frozen=True, tag="masked"):
    """A leaf, with ``value`` in place of the elements where the second input is 0 or false."""

    value: float = 0.0

    def compute(self, blocks: Sequence[Any], kit: Kit, at: Place) -> Any:
        block, mask = blocks
        holes = int(kit.apply(lambda m: (m != m).sum(), mask))  # noqa: PLR0124 - NaN alone differs from itself
        if holes:
            raise ValueRefusal(
                f"the mask of '{at.path}' has NaN in it",
                why=f"{holes} of its values are neither 0 nor another number",
                fix="write 0 or false where the leaf is to become 0, and 1 or true elsewhere",
                path=str(at.path),
            )

        def masked(x: Any, m: Any) -> Any:
            return kit.xp.where(m != 0, x, kit.xp.full((), self.value, dtype=x.dtype))

        return kit.apply(masked, block, mask)
