"""How the work of a run is shared by its processes, and how that is said."""

from __future__ import annotations

from surgery_cli.engine.shares import Share
from surgery_cli.store.write.item import copied_leaves
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import byte_text


def share_of(prepared: Prepared, number: int, count: int) -> Share:
    """What one of ``count`` processes does of a run."""
    computed = [leaf for plan in prepared.plans.values() for leaf in plan.computed]
    copied = [
        leaf
        for name, plan in prepared.plans.items()
        for leaf in copied_leaves(plan, compact=prepared.compact[name])
    ]
    return Share(number, count, computed, copied)


def shares_note(prepared: Prepared, count: int) -> Remark:
    """How much of a run each of ``count`` processes does."""
    sizes = share_of(prepared, 0, count).bytes
    return Remark(
        DocsPage.MANY_HOSTS,
        f"{count} processes: each makes {byte_text(min(sizes))} to {byte_text(max(sizes))} of values;"
        " the first one places what is by reference, and writes all small files; requests to buckets are told as"
        " of one process, and each of the others looks at the source and writes its part of a database for itself",
    )
