"""What joining and parting keys does to a tree: leaves get other paths, as by a rename."""

from __future__ import annotations

from tests.random_plans import places
from tests.random_plans.model import Fields, Path, Refused, State, Words, is_below
from tests.random_plans.patterns import patterns_of, select
from tests.random_plans.world import World


def flatten(state: State, edit: Fields, world: World, words: Words) -> None:
    separator, moves = edit["separator"], {}
    for path, node in _named(state, edit).items():
        keys = path[len(node) :]
        if any(separator in str(key) for key in keys):
            raise Refused(2, "the separator stands in a key")
        if len(keys) > 1 and any(isinstance(key, int) for key in keys):
            raise Refused(2, "an index would become a name")
        moves[path] = (*node, separator.join(map(str, keys))) if len(keys) > 1 else path
    _move(state, edit, moves)


def unflatten(state: State, edit: Fields, world: World, words: Words) -> None:
    separator, moves = edit["separator"], {}
    heads: dict[Path, set[bool]] = {}
    for path, node in _named(state, edit).items():
        keys = path[len(node) :]
        if not keys:
            moves[path] = path
            continue
        parts = keys[:1] if isinstance(keys[0], int) else tuple(keys[0].split(separator))
        if len(parts) > 1 and "" in parts:
            raise Refused(2, "an empty key")
        heads.setdefault((*node, parts[0]), set()).add(len(parts) > 1)
        moves[path] = (*node, *parts, *keys[1:])
    if any(len(found) > 1 for found in heads.values()):
        raise Refused(2, "a node is there already")
    _move(state, edit, moves)


def _named(state: State, edit: Fields) -> dict[Path, Path]:
    """The leaves with the topmost node that the pattern matches."""
    selected = select(state, edit, skips_empties=False, names_twins=True)
    patterns = patterns_of(edit["at"])
    return {
        path: min((found[0] for p in patterns if (found := p.nodes(path))), key=len)
        for path in selected
    }


def _move(state: State, edit: Fields, moves: dict[Path, Path]) -> None:
    places._check_policy(edit)
    source = list(state.leaves)
    if moves and all(old == new for old, new in moves.items()):
        raise Refused(2, "nothing changes")
    places._refuse_torn(state, moves, edit)
    places._say_newcomers(state, moves)
    carried = {**places._twin_moves(state, moves, copying=False), **moves}
    if any(is_below(new, root) for root in state.optimizer for new in moves.values()):
        state.may[2] = "keys of the optimizer's own"
    places._rekey(state, carried)
    touched = places._lists_of(carried) | places._lists_of(carried.values())
    places._closed(state, touched, moves.values())
    places._check_items(state)
    places._check_names(state, state.leaves, source)


OPERATIONS = {"flatten": flatten, "unflatten": unflatten}
