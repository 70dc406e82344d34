"""Settings of an optimizer that one side alone has on disk, here or a donor: what the other goes by is not known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from surgery_cli.draft.expression import LeafRef
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.draft.slots import Slot
from surgery_cli.optimizer.detect.survey import OptimizerSurvey
from surgery_cli.optimizer.follow.clock_agreement import Clocked
from surgery_cli.optimizer.follow.donor_numbers import (
    AFTERWARDS,
    BEFOREHAND,
    RATES,
    Shared,
    number_here,
    number_of,
)
from surgery_cli.optimizer.follow.states import States
from surgery_cli.optimizer.knowledge.adam_steps_of import UNDER_ANOTHER_DECAY, whose_steps
from surgery_cli.optimizer.knowledge.usual_decays import decay_arguments
from surgery_cli.optimizer.knowledge.usual_settings import is_usual_elsewhere, usual_setting
from surgery_cli.tree.paths import LeafPath

_MOST = 1.1
"""How far steps may be from those of the donor, as a factor, without a word of their size."""


class OneSided(msgspec.Struct, frozen=True):
    """A setting that one side stores, and what is known of the other.

    ``stored`` is None where it is not one number. ``tried`` is what a trial of the optimizer showed of the checkpoint
    that is edited. ``usual`` is optax's default, which ``is_sure`` unless factories differ; ``is_decay`` says that the
    number is one, and ``steps`` how large the next steps are with the default, in those of the donor, under a
    ``condition``.
    """

    path: LeafPath
    name: str
    is_there: bool
    stored: float | None
    tried: float | None = None
    usual: float | None = None
    is_sure: bool = True
    is_decay: bool = False
    steps: float | None = None
    condition: str = ""

    @property
    def because(self) -> str:
        """Why slots are not to be taken: a trial showed another decay; '' if none did."""
        if self.stored is None or self.tried is None or self._is_stored(self.tried):
            return ""
        return (
            f"'{self.path}', by which they go, is {self.stored:.4g} there, and the optimizer that was tried out here"
            f" has {self.name} = {self.tried:.4g}"
        )

    @property
    def changes_slots(self) -> bool:
        """True if slots go by it; else the steps alone that are made of them."""
        return self.name not in AFTERWARDS

    def sentence(self) -> str:
        """What is stored, and what follows where the other side has the default; '' if that, or a trial, agrees."""
        known = self.usual if self.tried is None else self.tried
        if known is not None and self._is_stored(known):
            return ""
        place, other = ("there", "here") if self.is_there else ("here", "there")
        number = f"is {self.stored:.4g} {place}" if self.stored is not None else f"stands {place}"
        they_go = ", by which they go," if self.changes_slots else ""
        said = f"'{self.path}'{they_go} {number}, and what {self.name} is {other} is not on disk"
        if self.usual is None or not self.is_sure:
            return said if self.changes_slots else f"{said}: the steps go by it"
        usual = f"{said}: with {self.usual:g} {other}, the default of optax,"
        if not self.is_decay:
            return f"{usual} the steps are not those of there"
        if self.steps is None or 1 / _MOST < self.steps < _MOST:
            return f"{usual} they are forgotten at another rate than there"
        steps = f"{self.condition}the next steps are {self.steps:.2g} times as large as there"
        return f"{usual} {steps}, of gradients that stay the same"

    def _is_stored(self, known: float) -> bool:
        """True if a default, or a decay that a trial showed, is the stored number; decays forget as fast."""
        if self.stored is None:
            return False
        within = 1e-3 * (1 - self.stored) if self.is_decay else 0.0
        return abs(known - self.stored) <= max(1e-6 * abs(self.stored), within)


def one_sided_settings(
    pairs: Sequence[tuple[Slot, Slot]],
    clocks: Sequence[Clocked],
    donor: str,
    draft: Draft,
    scene: States,
) -> list[OneSided]:
    """Settings by which slots go, or their counterparts in the donor, that the other side does not store."""
    here, there = scene.survey_of(SOURCE), scene.survey_of(donor)
    found: dict[LeafPath, OneSided] = {}
    for slot, other in pairs:
        origin = draft.leaves[slot.path].home
        if origin is None or origin.source != SOURCE:
            continue
        ours = dict(_settings_of(here.slots.get(origin.path, slot).node, here))
        theirs = dict(_settings_of(other.node, there))
        for name in ours.keys() ^ theirs.keys():
            is_there = name in theirs
            path = theirs[name] if is_there else draft.standing(ours[name])
            if not is_there and path not in draft.leaves:
                continue  # an edit before has deleted it
            number = (
                number_of(LeafRef(donor, path), scene)
                if is_there
                else number_here(draft.leaves[path], scene)
            )
            new = OneSided(path, name, is_there, number)
            found[path] = _with_default(found.get(path, new), slot, clocks)
    return [found[path] for path in sorted(found, key=str)]


def why_of_clock(clock: Clocked, sided: Iterable[OneSided], shared: Iterable[Shared]) -> str:
    """Why slots are not taken under a clock; how large steps would be only where both sides go by one setting."""
    apart = next((one.sentence() for one in shared if not one.agrees), "")
    if apart:
        return f"{clock.counts}; and {apart}"
    if any(one.sentence() for one in sided if one.changes_slots):
        return f"{clock.counts}; nor is it known that both go by the same settings"
    return clock.sentence()


def _with_default(setting: OneSided, slot: Slot, clocks: Sequence[Clocked]) -> OneSided:
    """The setting with optax's default, and with what is known of it as the decay of this slot, if it is that."""
    arguments = decay_arguments(slot.kinds, slot.factory)
    if not arguments or setting.name not in {argument.name for argument in arguments}:
        usual = usual_setting(setting.name, slot.kinds, slot.factory)
        if usual is None:
            return setting
        number = setting.stored
        is_of_another = (
            not slot.factory
            and number is not None
            and is_usual_elsewhere(setting.name, number, slot.kinds)
        )  # which is said where it is not the default of this kind
        is_sure = usual.is_sure and not is_of_another
        return msgspec.structs.replace(setting, usual=usual.number, is_sure=is_sure)
    if arguments[slot.is_second_moment].name != setting.name:
        return setting
    default = arguments[slot.is_second_moment].default
    condition = whose_steps(slot.kinds, slot.factory, UNDER_ANOTHER_DECAY)
    return msgspec.structs.replace(
        setting,
        tried=slot.decay if setting.is_there else None,
        usual=default,
        is_decay=True,
        steps=None if condition is None else _steps(setting, default, slot, clocks),
        condition=condition or "",
    )


def _steps(setting: OneSided, usual: float, slot: Slot, clocks: Sequence[Clocked]) -> float | None:
    """How large the next steps of Adam are, in those that the donor would take; None if it is not like that."""
    clock = next((one for one in clocks if one.drives == "bias_correction"), None)
    decay = setting.stored
    if clock is None or clock.ours is None or clock.theirs is None or decay is None:
        return None
    if not 0 <= decay < 1 or slot.power not in (-1, -2):
        return None
    of_there, of_here = (decay, usual) if setting.is_there else (usual, decay)
    gathered = 1 - of_there ** max(clock.theirs, 0)  # of gradients that stay the same
    corrected = (of_here * gathered + 1 - of_here) / (1 - of_here ** (max(clock.ours, 0) + 1))
    return 1 / math.sqrt(corrected) if slot.is_second_moment else corrected


def _settings_of(node: LeafPath, found: OptimizerSurvey) -> Iterator[tuple[str, LeafPath]]:
    """The settings of the state of a node, by which slots go, or steps: those of inner states last.

    The rates at which steps are taken are no default's matter, and others `init` alone reads.
    """
    owners = sorted(found.shared.items(), key=lambda one: len(one[1]))
    for path, owner in owners:
        name = found.hyperparams.get(path, "")
        if node.is_below(owner) and name and name not in RATES | BEFOREHAND:
            yield name, path
