"""Slots of params that became a mean over several checkpoints: the same mean of what all members have there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from surgery_cli.draft.assumptions import Assumption
from surgery_cli.draft.effect import Means
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import Problem
from surgery_cli.optimizer.follow.donor_notes import beside_taken
from surgery_cli.optimizer.follow.donor_slots import Donors, Taken
from surgery_cli.optimizer.follow.refusals import cannot_follow
from surgery_cli.optimizer.follow.states import Edit, States
from surgery_cli.optimizer.follow.transform import Change
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import joined, worded
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted


class Averages:
    """The means of slots under one edit, and what is said of them.

    They are linear in what an optimizer has gathered: momentum becomes what the mean of all gradients would have left,
    squares what the mean of all squares would, or the factors of that. Memories of past steps are not linear.
    """

    def __init__(self, donors: Donors, edit: Edit, scene: States) -> None:
        self._donors, self._edit, self._scene = donors, edit, scene
        self._counts: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def of(
        self,
        slots: Sequence[Slot],
        draft: Draft,
        refused: dict[tuple[object, ...], Problem],
        assumed: dict[LeafPath, Assumption],
    ) -> Iterator[tuple[Slot, Change]]:
        """What becomes of the slots of a param in one state, whose counts and kind agree in all members of its mean.

        Else there is nothing, and why is put into ``refused``; ``assumed`` gets what the states are taken for.
        """
        moving = [slot for slot in slots if slot.relation not in ("one", "hole")]
        stuck = [slot for slot in moving if slot.relation == "stacked"]
        for slot in stuck:
            refused.setdefault((slot.node,), cannot_follow(slot, self._edit.name))
        if stuck or not moving:
            return
        param = draft.leaves[moving[0].param]
        every = {
            member: self._donors.twins(member, moving, draft) for member in members_of(param.recipe)
        }
        apart = {member: because for member in every if (because := _apart(every[member]))}
        for member, because in apart.items():
            problem = _refusal(moving[0].param, member, because)
            refused.setdefault((member.source, because.partition(";")[0]), problem)
        if apart:
            return
        for member, taken in every.items():
            assumed.update(taken.assumed)
            self._counts[member.source, tuple(beside_taken(taken))] += len(moving)
        for slot in moving:
            before = draft.leaves[slot.path].recipe
            recipe = self._edit.made(slot.path, before, self._scene, param.recipe)
            yield slot, Change(self._edit.name, Means(), recipe)

    def notes(self) -> Iterator[Consequence]:
        """What differs between members that changes the steps alone."""
        for (source, beside), count in self._counts.items():
            if beside:
                said = f"{counted(count, 'slot')} {'is' if count == 1 else 'are'} averaged with those of '{source}'"
                yield Consequence(DocsPage.DONOR_SLOTS, joined("; ", [said, *beside]))


def members_of(recipe: Recipe) -> list[LeafRef]:
    """The stored leaves of which, beside a leaf's own values, a mean was made."""
    others = recipe.inputs[1:] if isinstance(recipe, Made) else ()
    return [one.ref for one in others if isinstance(one, Stored)]


def _apart(taken: Taken) -> str:
    """Why the slots of a member have no part in a mean; '' if they have."""
    for path, output in taken.recipes.items():
        if output.home is not None and output.home.path.text != path.text:
            return f"it has '{path}' at '{output.home.path}'"
    return taken.because


def _refusal(param: LeafPath, member: LeafRef, because: str) -> Problem:
    return Problem(
        f"the slots of '{param}' cannot be averaged with those in '{member.source}'",
        why=because,
        fix=worded("use {optimizer: warm}, `reset` or `keep`"),
        path=str(param),
        field="optimizer",
    )
