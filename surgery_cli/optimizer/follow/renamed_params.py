"""New params and new names where states of the optimizer leave out some: a script may choose them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.optimizer.follow.donor_schedules import PARTS
from surgery_cli.optimizer.follow.maps import leaves_out
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_SHOWN: Final = 3


def renamed_params(draft: Draft) -> list[Consequence]:
    """A note for params that got another name, or are new, beside params of other groups that kept theirs.

    They have the slots and holes that they had, or those of others that they are like. For which params a state has
    slots, `optax.masked` and `optax.partition` ask a function of the script, which the checkpoint does not hold.
    """
    groups: dict[LeafPath, set[LeafPath]] = {param: set() for param in draft.slots_of}
    for slot in draft.slots.values():
        if leaves_out(slot, draft):
            groups[slot.param].add(slot.state)
    if len({frozenset(every) for every in groups.values()}) < 2:
        return []
    states = {state for every in groups.values() for state in every}
    by_axes = _muon_by_axes(draft, groups)
    was = {param: _before(draft, param) for param in groups if param in draft.leaves}
    renamed = {param: old for param, old in was.items() if old not in (None, param)}
    if len(renamed) == len(was) and renamed.keys().isdisjoint(renamed.values()):
        renamed = {}  # to another format
    models = renamed | _models(draft, was, groups)
    if not models:
        return []
    new = quoted(in_listed_order(models), _SHOWN)
    old = quoted(in_listed_order(dict.fromkeys(filter(None, models.values()))), _SHOWN)
    took = "took" if renamed else "takes"
    ways = (
        (states - by_axes, "and the script says which"),
        (by_axes, "by their axes, as muon does unless the script says otherwise"),
    )
    return [
        Consequence(
            DocsPage.OPTIMIZERS,
            f"{quoted(sorted(some), _SHOWN)} {'leaves' if len(some) == 1 else 'leave'} out some params, {way}: if it"
            f" goes by names, see that it takes {new} as it {took} {old}; `--like-init` holds the result against it",
        )
        for some, way in ways
        if some
    ]


def _models(
    draft: Draft,
    was: Mapping[LeafPath, LeafPath | None],
    groups: Mapping[LeafPath, set[LeafPath]],
) -> dict[LeafPath, LeafPath]:
    """The params that are new in the tree, each with an older one that states treat alike, by its last key if any."""
    stood = {draft.standing(path) for path in draft.source_tree}
    alike: dict[tuple[frozenset[LeafPath], LeafPath], LeafPath] = {}
    for param in (p for p in was if p in stood):
        for last in (param[-1:], LeafPath()):
            alike.setdefault((frozenset(groups[param]), LeafPath(last)), param)
    found = {}
    for param in (param for param, old in was.items() if old is None and param not in stood):
        kinds = ((frozenset(groups[param]), LeafPath(last)) for last in (param[-1:], ()))
        model = next((alike[kind] for kind in kinds if kind in alike), None)
        if model is not None:
            found[param] = model
    return found


def _muon_by_axes(draft: Draft, groups: Mapping[LeafPath, set[LeafPath]]) -> set[LeafPath]:
    """The states that muon sorts params into by their axes, as far as these show; a script's names may agree."""
    nodes = {_parts(slot.state) for slot in draft.slots.values() if slot.optimizer == "muon"}
    found: set[LeafPath] = set()
    for node in nodes:
        own = {p: {one for one in every if one.is_below(node)} for p, every in groups.items()}
        if _goes_by_axes(draft, own):
            found.update(*own.values())
    return found


def _parts(state: LeafPath) -> LeafPath:
    """The node of the states that share the params with this one; itself if it has them alone."""
    found = [n for n, key in enumerate(state) if key == PARTS]
    return LeafPath(state[: found[-1] + 1]) if found else state


def _goes_by_axes(draft: Draft, groups: Mapping[LeafPath, set[LeafPath]]) -> bool:
    """True if params that had as many axes are in one group each, as muon has it unless a script says otherwise."""
    sorted_by: dict[int, set[frozenset[LeafPath]]] = {}
    for param, states in groups.items():
        if param in draft.leaves:
            home = draft.leaves[param].home
            own = home is not None and home.source == SOURCE
            spec = draft.source_tree[home.path] if home and own else draft.leaves[param].spec
            axes = len(spec.shape)
            sorted_by.setdefault(axes, set()).add(frozenset(states))
    return all(len(kinds) == 1 for kinds in sorted_by.values())


def _before(draft: Draft, param: LeafPath) -> LeafPath | None:
    """Where a param stood in the source; None if it comes from elsewhere."""
    home = draft.leaves[param].home
    return draft.standing(home.path) if home is not None and home.source == SOURCE else None
