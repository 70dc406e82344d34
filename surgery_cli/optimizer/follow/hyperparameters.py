"""Numbers that an optimizer keeps and no edit may make just any: counters, learning rates, decays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from surgery_cli.draft.effect import Rearranges
from surgery_cli.draft.expression import Stored
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.optimizer.follow.clocks import DRIVES, filled_with
from surgery_cli.optimizer.follow.scheduled import VALUES, has_bias_count, is_scheduled
from surgery_cli.optimizer.follow.states import States
from surgery_cli.optimizer.knowledge.setting_ranges import RANGES, corrects_bias
from surgery_cli.tree.dtypes import FLOATS, is_floating, rounded
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.advice import Text, worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_EXACT: Final = 2.0**-23
"""How far rounding may move a setting, relative to it, without a word: float32, in which optax computes, does."""

_MOST_NAMED: Final = 6


class Setting(msgspec.Struct, frozen=True):
    """A setting that edits give another value or dtype, element by element; mostly it has one.

    ``before`` is what was stored where the leaf comes from, ``asked`` what the edits make of that before it is rounded
    to the leaf's dtype, ``written`` what comes of it; the first two are empty where they are not known.
    """

    path: LeafPath
    name: str
    dtype: str
    before: tuple[float, ...]
    asked: tuple[float, ...]
    written: tuple[float, ...]
    is_recast: bool
    """True if the stored leaf has another dtype."""
    is_corrected_for: bool
    """True if a count stands in the state by which optax corrects for a bias."""

    @property
    def settings(self) -> LeafPath:
        """The node of all settings of its state; itself, if it stands alone."""
        at = max((n for n, key in enumerate(self.path) if key == VALUES), default=len(self.path))
        return LeafPath(self.path[: at + 1])

    @property
    def elements(self) -> Iterator[tuple[float | None, float | None, float]]:
        """What each element was, was to be, and is."""
        unknown = (None,) * len(self.written)
        return zip(self.before or unknown, self.asked or unknown, self.written, strict=True)


def changed_settings(
    draft: Draft, hyperparams: Mapping[LeafPath, str], scene: States
) -> list[Setting]:
    """Settings of the optimizer that edits change or bring, but for those that a schedule gives at the next step.

    ``hyperparams`` say what a number of the source is.
    """
    found: list[Setting] = []
    for path in draft.changed:
        output = draft.leaves[path]
        name = _name_of(path, output, hyperparams, draft, scene)
        if not name or not is_floating(output.spec.dtype) or is_scheduled(path, draft.leaves):
            continue
        home = _home(output, scene)
        before = () if home is None else _stored(home, scene)
        asked = _asked(output, before)
        written = scene.written(output.recipe)
        if written is None:
            written = tuple(rounded(number, output.spec.dtype) for number in asked)
        if not written:
            continue
        found.append(
            Setting(
                path,
                name,
                output.spec.dtype,
                before if len(before) == len(written) else (),
                asked if len(asked) == len(written) else (),
                written,
                home is not None and home.spec.dtype != output.spec.dtype,
                _is_corrected_for(path, draft),
            )
        )
    return found


def _name_of(
    path: LeafPath, output: Output, known: Mapping[LeafPath, str], draft: Draft, scene: States
) -> str:
    """What a changed leaf is as a setting; '' if it is none, or is moved and nothing else."""
    origin = output.home
    if origin is not None and origin.source == SOURCE:
        return known.get(origin.path, "") if output.edits else ""
    if name := known.get(LeafPath(path[1:]) if draft.items.front else path):
        return name
    if VALUES in path:  # it came with a state that the source does not have
        with suppress(PlanError):  # of params that are said, and that edits have taken away
            return scene.survey_of_draft(draft).hyperparams.get(path, "")
    return ""


def _home(output: Output, scene: States) -> Stored | None:
    """The stored leaf that this one continues."""
    if output.home is None:
        return None
    source = scene.source if output.home.source == SOURCE else scene.open(output.home.source)[1]
    return Stored(output.home, source.tree[output.home.path])


def _stored(home: Stored, scene: States) -> tuple[float, ...]:
    """What is stored where the leaf comes from; nothing where nobody reads values."""
    read = scene.written(home)
    if read is None and home.spec.size == 1:
        number = scene.number(home.ref)
        read = None if number is None else (number,)
    return read or ()


def _asked(output: Output, before: Sequence[float]) -> tuple[float, ...]:
    """What edits make of each element before it is rounded, as far as they tell."""
    if len(before) > 1 and any(isinstance(edit.effect, Rearranges) for edit in output.edits):
        return ()
    every = [filled_with(output, number) for number in before or (None,) * output.spec.size]
    return tuple(number for number in every if number is not None)


def _is_corrected_for(path: LeafPath, draft: Draft) -> bool:
    """True if a count by which optax corrects for a bias stands in the state whose setting this is."""
    clocks = {draft.standing(where): clock for where, clock in draft.clocks.items()}
    return has_bias_count(path, clocks)


def refuse_out_of_range(draft: Draft, settings: Sequence[Setting]) -> None:
    """A counter is never set below 0, nor is a setting made what its factory has no meaning for.

    That counts which is written: 0.999 is 1 in bfloat16.

    Raises:
        PlanError: edits make such numbers; lists each of them.
    """
    problems: list[Problem] = []
    for path in draft.changed:
        recipe = draft.leaves[path]
        is_own = recipe.home is not None and recipe.home.source == SOURCE and recipe.edits
        clock = draft.clock_at(path) if is_own else None
        value = None if clock is None else filled_with(recipe)
        if clock is not None and value is not None and value < 0:
            counted = f"steps, for {DRIVES[clock.drives]}" if clock.drives in DRIVES else "from 0"
            said = f"it counts {counted}"
            problems.append(_problem(path, value, said, "set it to 0 or more"))
    for setting in settings:
        faults = (_fault(setting, *element) for element in setting.elements)
        problems += [one for one in faults if one is not None][:1]
    raise_all(problems)


def _fault(
    setting: Setting, before: float | None, asked: float | None, number: float
) -> Problem | None:
    """What is wrong with an element that is written."""
    allowed = RANGES.get(setting.name)
    is_outside = allowed is not None and not allowed.holds(number)
    was_outside = allowed is not None and before is not None and not allowed.holds(before)
    if asked is not None and _is_lost(asked, number):
        why = f"{_digits(asked, number)} is rounded to it in {setting.dtype}"
        why += f", and {allowed.why}" if is_outside and allowed is not None else ""
        return _problem(setting.path, number, why, _instead(setting, number))
    if not is_outside or allowed is None:
        return None
    if was_outside:
        # a sign of the script's own, say; what optax divides by has no other meaning
        is_sure = corrects_bias(setting.name) and setting.is_corrected_for
        if not is_sure or number != before:
            return None if not is_sure else _outside(setting, number)
        why = f"it is that already, and {allowed.why}: what training had there is lost"
        fix = worded(
            "`set` it in the same plan to what your script gives, or take it from an earlier step;"
            " or leave settings out with {except: {}}",
            setting.settings.exact_pattern,
        )
        return _problem(setting.path, number, why, fix)
    return _outside(setting, number)


def _outside(setting: Setting, number: float) -> Problem:
    allowed = RANGES[setting.name]
    return _problem(setting.path, number, allowed.why, f"set it to {allowed.words}")


def _is_lost(asked: float, number: float) -> bool:
    """True if rounding makes 0 of what is not 0, or 1 of what is less: a share that is no share any more."""
    return (asked != 0 and number == 0) or (0 < asked < 1 and number == 1)


def _instead(setting: Setting, number: float) -> str:
    if setting.is_recast:
        return worded(
            "leave settings out with {except: {}}, or choose a wider dtype",
            setting.settings.exact_pattern,
        )
    if number == 0:
        return "set it to a larger number, or to 0 if that is meant"
    next_below = 1 - FLOATS[setting.dtype].rounding
    return f"set it to {next_below:.8g} or less: the next below 1 in {setting.dtype}"


def _problem(path: LeafPath, number: float, why: str, fix: str | Text) -> Problem:
    return Problem(f"'{path}' cannot be {number:g}", why=why, fix=fix, path=str(path), field="to")


def rounding_notes(settings: Sequence[Setting]) -> Iterator[Consequence]:
    """How far rounding moves settings by which the optimizer goes, where that is more than float32 itself does."""
    moved: dict[LeafPath, list[str]] = {}
    recast: set[LeafPath] = set()
    for setting in settings:
        far = [
            (asked, number)
            for _, asked, number in setting.elements
            if asked is not None and abs(number - asked) > _EXACT * abs(asked)
        ]
        if not far:
            continue
        asked, number = max(far, key=lambda pair: abs(pair[1] - pair[0]))
        said = f"'{setting.path}' from {_digits(asked, number)} to {_digits(number, asked)}"
        moved.setdefault(setting.settings, []).append(said)
        if setting.is_recast:
            recast.add(setting.settings)
    for node, every in moved.items():
        said = (
            f"rounding moves settings that the optimizer goes on with: {listed(every, _MOST_NAMED)}"
        )
        if node in recast:
            out = worded("; {except: {}} leaves them as they are", node.exact_pattern)
            yield Consequence(DocsPage.SETTINGS, said, *out.parts)
        else:
            yield Consequence(DocsPage.SETTINGS, said)


def _digits(number: float, other: float) -> str:
    """The number in as many digits as tell it from the other, at least in four."""
    for digits in range(4, 17):
        if f"{number:.{digits}g}" != f"{other:.{digits}g}":
            return f"{number:.{digits}g}"
    return repr(number)
