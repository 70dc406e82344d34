"""By which item a result is opened, where its source was opened by one."""

from __future__ import annotations

from surgery_cli.surgery.preparation import Prepared


def item_of_result(prepared: Prepared, item: str | None) -> str | None:
    """The ``item`` that `--item` names; None where the result is one tree by itself, or has more than the source."""
    is_one_tree = prepared.is_export or prepared.checkpoint.location.shape == "item"
    return None if is_one_tree or prepared.draft.items.made else item
