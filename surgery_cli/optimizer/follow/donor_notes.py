"""What is said of slots that come from a donor with their params, and of those that do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Problem
from surgery_cli.optimizer.follow.clock_agreement import Clocked
from surgery_cli.optimizer.follow.donor_slots import Taken
from surgery_cli.optimizer.follow.donor_untold import taking_the_count
from surgery_cli.optimizer.follow.outdated_notes import SlotConsequence, SlotRemark, as_seen
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import Text, joined, worded
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted


class Grafts:
    """The slots of one edit that donors have, counted for the notes."""

    def __init__(self) -> None:
        self._taken: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._left: dict[tuple[str, str], list[LeafPath]] = {}
        self._apart: dict[tuple[str, LeafPath], LeafPath | None] = {}

    def add(self, source: str, slots: Sequence[Slot], taken: Taken) -> None:
        """The slots of one param, and what the donor has for them."""
        if taken.recipes:
            self._taken[source, tuple(beside_taken(taken))] += len(taken.recipes)
        elif taken.because:
            paths = [slot.path for slot in slots]
            self._left.setdefault((source, taken.because), []).extend(paths)
            self._apart.update(((source, c.path), c.there) for c in taken.clocks if not c.agrees)

    def notes(
        self, draft: Draft, edited: Collection[LeafPath], after: Mapping[LeafPath, Output]
    ) -> list[Note]:
        """For the preview of an edit of the leaves ``edited``; ``after`` has what became of their slots."""
        found: list[Note] = []
        for (source, more), n in self._taken.items():
            said = f"{_slots(n)} {'comes' if n == 1 else 'come'} from '{source}' with the params"
            found.append(
                Consequence(DocsPage.DONOR_SLOTS, joined("; ", [said, *more]))
                if more
                else Remark(DocsPage.DONOR_SLOTS, said)
            )
        for (source, because), paths in self._left.items():
            stay = sum(path in after and after[path].policy == "keep" for path in paths)
            are = "is" if len(paths) == 1 else "are"
            said = f"{_slots(len(paths))} {are} not taken from '{source}', but {_instead(len(paths), stay)}: "
            note = SlotConsequence(DocsPage.DONOR_SLOTS, Text(said, because))
            note.seen = as_seen(paths, after, draft.leaves)
            found.append(note)
        for (source, clock), there in self._apart.items():
            driven = draft.driven_by(clock)
            if there is not None and all(slot.param in edited for slot in driven):
                advice = _with_the_count(source, clock, there, driven)
                advice.seen = as_seen((slot.path for slot in driven), after, draft.leaves)
                found.append(advice)
        return found


def _instead(count: int, stay: int) -> str:
    """What becomes of so many slots, of which some stay."""
    if count == 1:
        return "stays as it is" if stay else "restarts"
    if stay in (0, count):
        return "stay as they are" if stay else "restart"
    return (
        f"{count - stay} restart and {stay} {'stays as it is' if stay == 1 else 'stay as they are'}"
    )


def _with_the_count(
    source: str, clock: LeafPath, there: LeafPath, slots: Sequence[Slot]
) -> SlotRemark:
    """What takes slots along where all that a clock drives comes from a donor."""
    said = "" if all(slot.power is not None for slot in slots) else ", and say `--optimizer-kind`"
    return SlotRemark(
        DocsPage.DONOR_SLOTS, f"to take them, {taking_the_count(clock, there, source)}{said}"
    )


def beside_taken(taken: Taken) -> list[str]:
    """What is to be said of slots of a donor that go on here: what differs, and on what they rest."""
    apart = [f"{one}, so that the steps are not those of there" for one in taken.apart]
    under = [_assumed(clock) for clock in taken.clocks if not clock.is_sure]
    sided = [(one.sentence(), one.changes_slots) for one in taken.one_sided]
    steps = [sentence for sentence, changes_slots in sided if sentence and not changes_slots]
    slots = [sentence for sentence, changes_slots in sided if sentence and changes_slots]
    instead = [worded("{optimizer: warm} or `reset` restarts them instead")] if slots else []
    return [*apart, *steps, *under, *slots, *instead]


def _assumed(clock: Clocked) -> str:
    """Under which condition slots may go on under another clock."""
    counts = f"counted to {clock.theirs:,.0f} there and {clock.ours:,.0f} here ('{clock.path}')"
    return f"{counts}, which makes no difference for decays of up to {clock.largest_decay:.4g}"


def no_graft(param: LeafPath, origin: LeafRef, taken: Taken) -> Problem:
    """The problem of an explicit ``transform`` where the donor's slots cannot follow their param."""
    why = taken.because or "it has no such slots, or some of another shape"
    return Problem(
        f"the slots of '{origin.path}' in '{origin.source}' cannot go on for '{param}'",
        why=why,
        fix=worded("use {optimizer: warm}, `reset` or `keep`"),
        path=str(param),
        field="optimizer",
    )


def _slots(count: int) -> str:
    return counted(count, "slot")
