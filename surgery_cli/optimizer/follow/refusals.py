"""What slots cannot do, in words: why an edit of their params, or of themselves, is refused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from surgery_cli.draft.effect import Effect, Scales, is_new, may_be_negative
from surgery_cli.draft.kernels.scale import SIGNS_OF_POWERS
from surgery_cli.draft.placeholders import KIND, slots_line
from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.draft.slots import LEAST_FACTORED, Slot
from surgery_cli.errors import PlanError, Problem
from surgery_cli.optimizer.detect.groups import LIKE_INIT
from surgery_cli.optimizer.follow.answers import Answer, answers_to
from surgery_cli.optimizer.follow.states import Edit
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import InPlan, Text, joined, worded

PER_LEAF: Final = (
    "what reaches it was divided by the size of the whole leaf, so that it follows one factor of the leaf,"
    " but no array of factors"
)


def cannot_follow(slot: Slot, name: str) -> Problem:
    """Why a slot cannot follow the edit of this name by a factor."""
    if not slot.is_settled:
        what = "the power" if slot.power is None else "what is left of the start"
        return Problem(
            f"{what} of '{slot.path}' is not known, so it cannot follow '{name}'",
            why=slot.unsure_because or "the disk does not tell it",
            fix=joined(
                "; or ", (*slot.settled_by, worded("use {optimizer: keep}, `reset` or `warm`"))
            ),
            path=str(slot.path),
        )
    return Problem(
        f"'{slot.path}' cannot follow '{name}' on '{slot.param}'",
        why=PER_LEAF
        if slot.is_per_leaf
        else f"no rule is known for a {slot.title} ({slot.relation})",
        fix=worded("use {optimizer: keep}, `reset` or `warm`"),
        path=str(slot.path),
    )


def unknown_start(slot: Slot, *, may_stay: bool = True) -> Problem:
    """The slots of a field are to restart, and nobody knows at what; ``may_stay``: they could stay as they are."""
    by_kind = worded("; or {}, if it is optax's default", KIND) if slot.is_recognised else ""
    return Problem(
        f"the initial value of '{slot.node}' is not known",
        why=why_no_start(slot),
        fix=Text(
            worded("use {optimizer: keep}, or ") if may_stay else "",
            start_line(slot),
            by_kind,
            "; or ",
            LIKE_INIT,
        ),
        path=str(slot.node),
    )


def why_no_start(slot: Slot) -> str:
    """Why the number is not known at which the optimizer starts a slot."""
    if slot.is_recognised:
        return f"{slot.title} starts at a setting of the optimizer, which is not on disk"
    return f"nothing tells at what a script starts {slot.title}"


def start_line(slot: Slot) -> Text:
    """What says at which number slots start: the whole entry, with what was said of them before."""
    if slot.is_recognised:
        return worded("add {}, with X that value", InPlan(slots_line(slot.node, fresh="X")))
    said = {"power": "K"} | said_of(slot)
    power = "" if slot.power is not None else f" and {POWER_K}"
    return worded(
        "add {}, with X that value{}", InPlan(slots_line(slot.node, **said, fresh="X")), power
    )


def said_of(slot: Slot) -> dict[str, str]:
    """What was said in `slots:` of a slot."""
    said = {} if slot.power is None else {"power": str(slot.power)}
    if slot.power is not None and not slot.is_sign_open and (slot.is_even or slot.power % 2 == 0):
        said["even"] = str(slot.is_even).lower()
    return said | ({"second_moment": "true"} if slot.is_second_moment else {})


POWER_K: Final = "K its power (-1 holds gradients, -2 their squares: say `even: true, second_moment: true` as well)"


SETTLES_FACTORING: Final = worded(
    "say it with {optimizer_kind: {}}, the call in your script, or {}",
    "adafactor(…, min_dim_size_to_factor=N)",
    LIKE_INIT,
)


def unknown_factoring(shape: Sequence[int]) -> str:
    """Why it is not known whether a param of this shape has a factored moment."""
    return (
        f"whether a param of shape {list(shape)} is factored depends on `min_dim_size_to_factor`,"
        f" which other params show not to be {LEAST_FACTORED}"
    )


def has_no_map(
    slot: Slot, name: str, why: str, *, may_restart: bool = False, settled_by: str = ""
) -> Problem:
    """Why a slot cannot follow the edit of this name, which moves the elements of its param."""
    delete = f"`delete` '{slot.whole_state}' in an edit before, and let the script begin with fresh optimizer state"
    return Problem(
        f"'{slot.path}' cannot follow '{name}' on '{slot.param}'",
        why=why,
        fix=worded("use {optimizer: reset}: it starts anew")
        if may_restart
        else joined("; or ", filter(None, (settled_by, delete))),
        path=str(slot.path),
    )


def does_not_fit(slot: Slot, own: LeafSpec, param: LeafSpec) -> Problem:
    """A slot is to stay as it is, and its param gets another shape."""
    return Problem(
        f"'{slot.path}' cannot stay as it is",
        why=f"it is {own.type_text}, and its param '{slot.param}' becomes {param.type_text}",
        fix=worded("leave {optimizer} out, or use {optimizer: reset} or `warm`"),
        path=str(slot.path),
    )


def other_partition(param: LeafPath, hole: Slot) -> Problem:
    """A param gets another number of axes, by which states that leave out some often choose their params."""
    return Problem(
        f"whether '{hole.node}' has a place for '{param}' is not known",
        why="the state leaves out some params, most often by their number of axes, and this one gets another",
        fix="keep the number of axes; or `delete` the optimizer state in an edit before, and let the script begin with"
        " its own",
        path=str(hole.path),
    )


def open_signs(slots: Iterable[Slot], effect: Effect) -> dict[tuple[object, ...], Problem]:
    """A problem for each tree of an even power that would follow a negative number, and nothing says with what sign."""
    if not (isinstance(effect, Scales) and isinstance(effect.by, float | int) and effect.by < 0):
        return {}
    return {(s.node, "sign"): _sign_open(s) for s in slots if s.is_sign_open}


def _sign_open(slot: Slot) -> Problem:
    fresh = {} if slot.fresh is None else {"fresh": f"{slot.fresh:g}"}
    return Problem(
        f"'{slot.node}' has an even power, and nothing says whether its signs follow a negative factor",
        why=SIGNS_OF_POWERS,
        fix=worded(
            "add {} if it holds squares or magnitudes, with `even: false` if its signs follow the gradients; or use"
            " {optimizer: keep}, `reset` or `warm`",
            InPlan(slots_line(slot.node, **said_of(slot), even="true", **fresh)),
        ),
        path=str(slot.node),
        field="slots",
    )


def half_told(told: Slot, missing: Slot) -> Problem:
    """The user said what some slots of a state are; alone, that would settle nothing."""
    return Problem(
        f"`slots:` gives '{told.node}', and '{missing.node}' is missing",
        why="the slots of one state follow an edit together or not at all",
        fix=worded("add '{}' to `slots:` with its power, or use {optimizer: keep}", missing.node),
        path=str(missing.path),
        field="slots",
    )


def half_told_beside(told: Slot, missing: Slot, or_else: str) -> Problem:
    """Slots would follow that the user named, while a tree beside them stays of which nobody said what it is."""
    ways = missing.assumed.settled_by if missing.assumed is not None else ""
    return Problem(
        f"'{told.node}' would follow the edit, and nothing says what '{missing.node}' beside it is",
        why="the slots of one state follow an edit together or not at all",
        fix=Text(ways, "; or ", or_else),
        path=str(missing.node),
        field="slots",
    )


def refuse_policy(edit: Edit, policy: str | None, *, takes: bool) -> None:
    """Raise if nothing could follow the edit by this policy, whatever the optimizer; ``takes``: from a donor."""
    if edit.effect == Scales(0) and policy in ("transform", "warm"):
        raise PlanError(
            worded("a factor of 0 leaves nothing for {optimizer: {}} to follow", policy),
            why="optimizer state follows a factor by its inverse",
            fix=worded("use {optimizer: reset} or `keep`"),
            field="optimizer",
        )
    if answers_to(edit.effect).keep is Answer.REFUSED and policy == "keep":
        raise PlanError(
            worded("{optimizer: keep} cannot hold under '{}'", edit.name),
            why="the params get another shape, and their slots must have it",
            fix=worded("use {optimizer: warm}, `transform` or `reset`"),
            field="optimizer",
        )
    if answers_to(edit.effect).transform is Answer.REFUSED and policy == "transform" and not takes:
        raise PlanError(
            worded("{optimizer: transform} has nothing to follow in '{}'", edit.name),
            why="the new values do not come from the old ones"
            + ("" if is_new(edit.effect) else " alone"),
            fix=worded("use {optimizer: warm}, `reset` or `keep`"),
            field="optimizer",
        )


def refuse_negative(draft: Draft, edit: Edit, edited: Iterable[LeafPath]) -> None:
    """Raise if an edit that names squares, magnitudes or rates would make them negative."""
    if not may_be_negative(edit.effect):
        return
    for path in edited:
        why = _why_nonnegative(path, draft)
        if why:
            raise PlanError(
                f"'{path}' would become negative",
                why=why,
                fix="use a value of at least 0",
                path=str(path),
            )


def _why_nonnegative(path: LeafPath, draft: Draft) -> str:
    """Why the optimizer's leaf at ``path`` is never below 0; '' if it may be."""
    slot, origin = draft.slots.get(path), draft.leaves[path].home
    if slot is not None and slot.is_even and slot.relation != "hole":
        return f"{slot.title} holds squares or magnitudes; the optimizer takes roots of them"
    if origin is not None and origin.source == SOURCE and origin.path in draft.nonnegative:
        return "the optimizer keeps a square, a size or a rate in it, which is never below 0"
    return ""
