"""What becomes of the optimizer state when params are edited: the table of effects and policies.

Where the disk alone need not tell what a slot is, the preview may keep what an optimizer's own rule would carry; then
its words decide which of the two values must stand there, and nothing else may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.random_plans.model import (
    Fields,
    Leaf,
    Path,
    Refused,
    Slot,
    State,
    Words,
    is_below,
    printed,
)
from tests.random_plans.optimizers import FACTORED_FROM
from tests.random_plans.patterns import select

if TYPE_CHECKING:
    from tests.random_plans.world import World


def slots_of(state: State, edited: Iterable[Path]) -> list[Slot]:
    """The twins of edited params that the edit does not name itself."""
    named = set(edited)
    return [
        slot
        for slot in state.slots.values()
        if slot.param in named
        and slot.path not in named
        and slot.path in state.leaves
        and slot.relation in ("same", "factored")
    ]


def policy_of(edit: Fields) -> str | None:
    return edit.get("optimizer") or edit.get("_plan_optimizer")


def _is_told(edit: Fields) -> bool:
    """True if the plan says what made the optimizer state, so that nothing is unsure."""
    return bool(edit.get("_is_told"))


def _put(state: State, slot: Slot, value: Any, *, ulps: float = 0, known: bool = True) -> None:
    leaf = state.leaves[slot.path]
    new = np.asarray(value)
    state.leaves[slot.path] = leaf.with_value(new.astype(leaf.dtype), ulps=ulps, known=known)


def fresh(state: State, slot: Slot) -> None:
    leaf = state.leaves[slot.path]
    value = np.full(leaf.shape, slot.fresh).astype(leaf.dtype)
    state.leaves[slot.path] = replace(leaf, value=value, ulps=0, narrowest="", known=True)
    state.restarted.add(slot.path)


def has_second(state: State, slot: Slot) -> bool:
    return any(
        other.is_second and other.param == slot.param and other.state == slot.state
        for other in state.slots.values()
        if other.path in state.leaves and other.relation in ("same", "factored")
    )


# --- factors -----------------------------------------------------------------------------------------------------


def follow_factor(
    state: State, before: State, edit: Fields, factors: Mapping[Path, Any], words: Words
) -> None:
    policy = policy_of(edit)
    slots = slots_of(state, factors)
    is_zero = edit["op"] == "rescale" and edit["by"] == 0
    if not slots:
        return
    if is_zero and policy in ("transform", "warm"):
        raise Refused(2, "no slot follows a factor of 0")
    for slot in slots:
        if state.leaves[slot.param] is before.leaves[slot.param]:
            continue
        own = policy
        if is_zero and own is None:
            own = "reset"
        if own is None:
            own = "transform"
            if words(slot.path) in ("keep", ""):
                _refuse_silence(state, slot, edit, factors[slot.param])
                own = "keep"
        if own == "transform":
            if policy == "transform" and not (
                _is_told(edit) and not _is_array(edit, factors[slot.param])
            ):
                state.may[2] = f"the power of '{printed(slot.path)}' need not be known"
            _scale(state, slot, factors[slot.param])
        elif own == "reset" or (own == "warm" and not slot.is_second):
            fresh(state, slot)


def _refuse_silence(state: State, slot: Slot, edit: Fields, factor: Any) -> None:
    """What was told to follow must, unless nothing would change: zeros, and what is multiplied by 1."""
    is_one = not _is_array(edit, factor) and (factor == 1 or (slot.is_even and factor == -1))
    if not _is_told(edit) or _is_array(edit, factor) or is_one:
        return
    if np.any(state.leaves[slot.path].value):
        raise AssertionError(f"'{printed(slot.path)}' is kept, and its kind was told")


def _is_array(edit: Fields, factor: Any) -> bool:
    return isinstance(factor, np.ndarray)


def _scale(state: State, slot: Slot, factor: Any) -> None:
    leaf = state.leaves[slot.path]
    if isinstance(factor, float) and np.isnan(factor):
        _put(state, slot, leaf.value, known=False)
        return
    if slot.power == 0:
        return
    size = np.abs(np.asarray(factor, "float64"))
    with np.errstate(all="ignore"):
        power = np.where(size == 0, 1.0, size) ** float(slot.power)
        sign = 1.0 if slot.is_even else np.where(np.asarray(factor) < 0, -1.0, 1.0)
        if isinstance(factor, np.ndarray) and slot.relation != "same":
            state.may[2] = "an array over a factored slot"
            power = np.ones(()) * np.nan
        new = (np.asarray(leaf.value).astype("float64") * (power * sign)).astype(leaf.dtype)
    old = np.abs(np.asarray(leaf.value).astype("float64"))
    if not np.isfinite(new.astype("float64")[np.isfinite(old)]).all():
        state.refuse_value(f"'{printed(slot.path)}' gets infinities")
    if ((new.astype("float64") == 0) & (old != 0)).any():
        state.may[1] = f"'{printed(slot.path)}' gets zeros"
    _put(state, slot, new, ulps=2 if leaf.dtype == "float32" else 1)
    if not leaf.known:
        _put(state, slot, leaf.value, known=False)


def refuse_negative(state: State, named: Iterable[Path], number: Any) -> None:
    """No edit leaves a slot of squares negative."""
    if isinstance(number, str) or number >= 0:
        return
    for path in named:
        slot = state.slots.get(path)
        if slot is not None and slot.is_even and slot.relation in ("same", "factored", "one"):
            raise Refused(2, f"'{printed(path)}' would become negative")
        if slot is None and state.holds_optimizer(path):
            state.may[2] = f"'{printed(path)}' may be a number that is never negative"


def refuse_negative_weights(state: State, named: Iterable[Path]) -> None:
    for path in named:
        slot = state.slots.get(path)
        if slot is not None and slot.is_even and slot.relation != "hole":
            raise Refused(2, f"'{printed(path)}' could become negative")
        if slot is None and state.holds_optimizer(path):
            raise Refused(2, f"'{printed(path)}' is a number of the optimizer's own")
        if slot is not None or path[-1:] == ("var",):
            state.may[2] = "weights below 0 and slots"


# --- new values --------------------------------------------------------------------------------------------------


def follow_new_values(
    state: State,
    before: State,
    edit: Fields,
    selected: Iterable[Path],
    words: Words,
    *,
    world: World | None = None,
) -> None:
    policy = policy_of(edit)
    slots = slots_of(state, selected)
    takes = world is not None and world.is_checkpoint(edit["with"])
    if takes and policy == "transform":
        state.may[2] = "the donor may have no twins"
    else:
        _refuse_transform(state, edit, selected, slots)
    reshaped = {p for p in selected if state.leaves[p].shape != before.leaves[p].shape}
    _renew(state, before, edit, reshaped)
    for slot in slots:
        leaf = state.leaves[slot.path]
        if policy == "keep" or slot.param in reshaped:
            continue
        if takes and policy in (None, "transform"):
            said = words(slot.path)
            if said not in ("warm", "reset", "keep", "", "refused"):
                home = state.leaves[slot.param].home
                assert home is not None
                value = world.twin_of(home, slot, before)
                state.leaves[slot.path] = Leaf(value, ("donor", ()))
                continue
        if policy is None and words(slot.path) == "keep":
            if _is_told(edit):
                raise AssertionError(f"'{printed(slot.path)}' is kept, and its kind was told")
            continue  # what it starts from is not known
        warm = (policy or "warm") == "warm" and has_second(state, slot)
        if not warm or not slot.is_second:
            fresh(state, slot)
        elif np.size(leaf.value) > 1:
            mean = np.asarray(leaf.value).astype("float64").mean()
            value = np.full(leaf.shape, mean).astype(leaf.dtype)
            _put(state, slot, value, ulps=2, known=leaf.known)


def _renew(state: State, before: State, edit: Fields, reshaped: Iterable[Path]) -> None:
    """Slots of params in another shape start anew, or at the mean of what they were."""
    named = select(state, edit) if reshaped else ()
    for slot in list(state.slots.values()):
        if slot.param not in reshaped or slot.path in named or slot.path not in state.leaves:
            continue
        old, new = before.leaves[slot.param].shape, state.leaves[slot.param].shape
        own = before.leaves[slot.path]
        if slot.relation == "hole":
            if len(old) != len(new):
                raise Refused(2, f"whether '{printed(slot.path)}' stays a hole")
            continue
        field = str(slot.path[len(slot.node) - 1])
        is_factored = {"v_row", "v_col", "v"} >= {field} and any(
            other.param == slot.param and other.path[len(other.node) - 1] == "v_row"
            for other in state.slots.values()
        )
        shape = _part(new, field) if is_factored else new
        if policy_of(edit) == "keep" and shape != own.shape:
            raise Refused(2, f"'{printed(slot.path)}' cannot stay")
        relation = "same" if shape == new else "one" if shape == (1,) else "factored"
        value, known, ulps = np.full(shape, slot.fresh), True, 0
        if policy_of(edit) == "warm" and slot.is_second and shape != (1,):
            held = _held(before, slot) if is_factored else own
            value, known, ulps = (
                np.full(shape, np.asarray(held.value, "float64").mean()),
                held.known,
                2,
            )
        state.slots[slot.path] = replace(slot, relation=relation)
        state.leaves[slot.path] = replace(
            own, value=value.astype(own.dtype), ulps=ulps, narrowest=own.dtype, known=known
        )
        if not ulps:
            state.restarted.add(slot.path)


def _part(shape: tuple[int, ...], field: str) -> tuple[int, ...]:
    """The shape of a part of Adafactor's second moment."""
    order = np.argsort(shape)
    has = len(shape) > 1 and shape[order[-2]] >= FACTORED_FROM
    if has == (field == "v"):
        return (1,)
    if field == "v":
        return shape
    return tuple(np.delete(shape, order[-1] if field == "v_row" else order[-2]))


def _held(before: State, slot: Slot) -> Leaf:
    """The part of Adafactor's second moment that tells its size."""
    parts = [s for s in before.slots.values() if s.param == slot.param and s.is_second]
    own = [s for s in parts if s.path == slot.path and s.relation != "one"]
    return before.leaves[(own or [s for s in parts if s.relation != "one"])[0].path]


def _refuse_transform(
    state: State, edit: Fields, selected: Iterable[Path], slots: list[Slot]
) -> None:
    """New values do not come from the old ones, so that nothing can follow them; named twins need not."""
    if policy_of(edit) != "transform":
        return
    if slots:
        raise Refused(2, "new values have nothing to follow")
    if any(slot.param in set(selected) for slot in state.slots.values()):
        state.may[2] = "nothing but named twins would follow"


def follow_cast(
    state: State, before: State, edit: Fields, changed: Iterable[Path], words: Words
) -> None:
    policy = edit.get("optimizer")
    if policy in (None, "keep", "transform"):
        return
    for slot in slots_of(state, changed):
        if policy == "warm" and has_second(state, slot) and slot.is_second:
            continue
        fresh(state, slot)


def follow_average(
    state: State,
    before: State,
    edit: Fields,
    selected: Iterable[Path],
    words: Words,
    mean: Callable[[Path], Any] | None = None,
) -> None:
    """``mean``: that of a slot over the members, which follows where kinds and counts agree there."""
    policy = policy_of(edit)
    slots = slots_of(state, selected)
    if policy == "transform" and mean is not None and slots and words(slots[0].path) != "refused":
        for slot in slots:
            leaf = state.leaves[slot.path]
            _put(state, slot, mean(slot.path), ulps=1, known=leaf.known)
        return
    _refuse_transform(state, edit, selected, slots)
    for slot in slots:
        if policy == "keep" or (policy is None and words(slot.path) == "keep"):
            continue
        if (policy or "warm") == "warm" and has_second(state, slot) and slot.is_second:
            continue
        fresh(state, slot)


def follow_shift(
    state: State, before: State, edit: Fields, selected: Iterable[Path], words: Words
) -> None:
    """Slots stay unless a policy says otherwise."""
    if policy_of(edit) in (None, "keep"):
        return
    follow_average(state, before, edit, selected, words)


# --- zeros -------------------------------------------------------------------------------------------------------


def follow_mask(
    state: State, before: State, edit: Fields, masks: Mapping[Path, Any], words: Words
) -> None:
    policy = policy_of(edit)
    for slot in slots_of(state, masks):
        said = policy or "transform"
        if policy is None and words(slot.path) == "keep":
            if _is_told(edit):
                raise AssertionError(f"'{printed(slot.path)}' is kept, and its kind was told")
            said = "keep"
        if said == "keep" or (slot.is_second and said != "reset"):
            continue
        if slot.relation != "same":
            raise Refused(2, f"'{printed(slot.path)}' has no element for each of the param's")
        leaf, chosen = state.leaves[slot.path], masks[slot.param]
        fresh = np.full((), slot.fresh).astype(leaf.dtype)
        value = leaf.value if chosen is None else np.where(chosen, np.asarray(leaf.value), fresh)
        _put(state, slot, value, known=leaf.known and chosen is not None)


# --- clocks ------------------------------------------------------------------------------------------------------


def set_clock(state: State, path: Path, to: Any) -> None:
    """A counter goes back to its start only with every slot that it drives, in one plan."""
    if to < 0:
        raise Refused(2, "a counter below 0")
    if to == 0:
        state.restarted.add(path)


def check_clocks(state: State) -> None:
    """At the end of a plan."""
    for clock, owner in state.clocks.items():
        leaf = state.leaves.get(clock)
        if leaf is None or clock not in state.restarted or np.asarray(leaf.value).reshape(()) != 0:
            continue
        driven = [slot for slot in state.slots.values() if is_below(slot.path, owner)]
        for slot in driven:
            if slot.relation not in ("same", "factored"):
                continue
            value = np.asarray(state.leaves[slot.path].value).astype("float64")
            why = f"'{printed(clock)}' starts anew and '{printed(slot.path)}' goes on"
            if slot.path not in state.restarted and (value != slot.fresh).any():
                raise Refused(2, why)
            state.may[2] = why


def reset_optimizer(state: State, edit: Fields, world: World, words: Words) -> None:
    from tests.random_plans.patterns import patterns_of, select

    selected = set(select(state, edit, skips_empties=False, everything=not edit.get("at")))
    spared = patterns_of(edit.get("except", ()))
    found = [
        slot
        for slot in state.slots.values()
        if slot.relation in ("same", "factored")
        and slot.path in state.leaves
        and {slot.path, slot.param} & selected
        and not any(p.names(slot.path) or p.names(slot.param) for p in spared)
    ]
    if not found and not edit.get("optional"):
        raise Refused(2, "the edit names no slot")
    for slot in found:
        fresh(state, slot)
    if edit.get("clocks"):
        for clock, owner in state.clocks.items():
            if clock in state.leaves and any(is_below(slot.path, owner) for slot in found):
                leaf = state.leaves[clock]
                state.leaves[clock] = leaf.with_value(np.zeros(leaf.shape, leaf.dtype))
                state.restarted.add(clock)
