"""Pairs as the edits of a plan: values in place first, then layers stacked or parted, all moves at once, then casts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

from surgery_cli.matching.families import Family
from surgery_cli.matching.fused import Fusion
from surgery_cli.matching.gaps import highest_nodes
from surgery_cli.matching.moves import with_nodes
from surgery_cli.matching.pairing import Pairing
from surgery_cli.matching.pairs import Pair
from surgery_cli.operations.numbered import numbered_places
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.targets import target_text

Edit: TypeAlias = dict[str, Any]


class Step(msgspec.Struct, frozen=True):
    """An edit, with the pairs for whose sake it stands there."""

    edit: Edit
    pairs: tuple[Pair | Fusion, ...] = ()


def edits_of(found: Pairing, tree: Iterable[LeafPath]) -> list[Step]:
    """The edits that make of every pair's old leaves its new ones; ``tree``: the leaves that are edited."""
    pairs, copies = found.pairs, found.copies
    aside = _Aside(tree, pairs, copies)
    steps = [_split(one) for one in found.splits]
    steps += [
        Step({"op": "copy", "at": pair.old.pattern, "to": _to(pair.new, pair.old)}, (pair,))
        for pair in copies
    ]
    steps += _deleted(found.drops, tree)
    steps += _cast([(pair.old.pattern, pair) for pair in pairs if pair.widens])
    steps += _changed([(pair.old.pattern, pair) for pair in pairs])
    steps += _arranged(
        [
            *((pair.old.pattern, pair) for pair in pairs if pair.form.unstack is None),
            *((pair.new.pattern, pair) for pair in copies),
        ]
    )
    steps += [
        Step(_named(pair.form.resize.edit, pair.old.pattern), (pair,))
        for pair in pairs
        if pair.form.resize is not None
    ]
    for pair in pairs:
        if pair.form.stack is not None:
            edit: Edit = {"op": "stack", "at": _in_order(pair.old), "to": aside.place(pair.new)}
            steps.append(Step(edit | _axis(pair.form.stack), (pair,)))
        elif pair.form.unstack is not None:
            edit = {"op": "unstack", "at": pair.old.pattern, **numbered_places(pair.new.members)}
            steps.append(Step(edit | _axis(pair.form.unstack), (pair,)))
    steps += _moved(pairs, aside, [*tree])
    steps += _arranged([(p.new.pattern, p) for p in pairs if p.form.unstack is not None])
    steps += _cast([(p.new.pattern, p) for p in [*pairs, *copies] if not p.widens or p in copies])
    return [*steps, *(_joined(one) for one in found.joins)]


def _in_order(family: Family) -> str | list[str]:
    """What names its members in their order: numbers in braces are taken by size, whatever their order."""
    is_rising = sorted(family.numbers, key=int) == list(family.numbers)
    return family.pattern if is_rising else [path.exact_pattern for path in family.members]


def _split(one: Fusion) -> Step:
    """The edit that cuts a fused leaf."""
    to = [part.target(part) for part in one.parts]
    sizes = {} if len(set(one.sizes)) == 1 else {"sizes": list(one.sizes)}
    return Step(
        {"op": "split", "at": one.whole.pattern, "to": to, "axis": one.axis, **sizes}, (one,)
    )


def _joined(one: Fusion) -> Step:
    """The edit that puts a fused leaf together."""
    at = [part.pattern for part in one.parts]
    to = one.whole.target(one.whole)
    return Step({"op": "concat", "at": at, "to": to, "axis": one.axis}, (one,))


def _deleted(drops: Sequence[Pair], tree: Iterable[LeafPath]) -> Iterator[Step]:
    """The edit that takes leaves out, with the nodes that have nothing else: no empty node is left."""
    gone = [path for pair in drops for path in pair.old.members]
    others = set(tree) - set(gone)
    nodes = [node.exact_pattern for node, _ in highest_nodes(gone, others)]
    if nodes:
        yield Step({"op": "delete", "at": nodes[0] if len(nodes) == 1 else nodes}, tuple(drops))


def _named(edit: Edit, at: str) -> Edit:
    return {"op": edit["op"], "at": at} | edit


def _axis(axis: int) -> Edit:
    return {"axis": axis} if axis else {}


class _Aside:
    """Places that are not free yet when leaves are stacked there: they wait under a name of their own."""

    def __init__(
        self, tree: Iterable[LeafPath], pairs: Sequence[Pair], copies: Sequence[Pair]
    ) -> None:
        self._taken = {path.text for path in tree}
        self._goals = {path.text for pair in (*pairs, *copies) for path in pair.new.members}
        self.moves: dict[str, tuple[str, Family]] = {}

    def place(self, family: Family) -> str:
        """Where the only leaf of a family is to be made."""
        path = family.members[0]
        text = path.text
        is_blocked = any(
            text == other or text.startswith(f"{other}/") or other.startswith(f"{text}/")
            for other in self._taken
        )
        if not is_blocked:
            return target_text(path)
        spare = next(
            name
            for name in (f"aside_{n}" for n in range(len(self._taken) + len(self.moves) + 1))
            if name not in self._taken and name not in self._goals and name not in self.moves
        )
        self.moves[spare] = (target_text(path), family)
        return spare


def _to(new: Family, old: Family) -> str:
    return new.target(old) or target_text(new.members[0])


def _changed(named: Sequence[tuple[str, Pair]]) -> Iterator[Step]:
    """What is done to the values themselves, the same to several at once."""
    groups: dict[object, list[tuple[str, Pair]]] = {}
    for at, pair in named:
        if pair.form.change is not None:
            groups.setdefault(pair.form.change, []).append((at, pair))
    for members in groups.values():
        change = members[0][1].form.change
        assert change is not None
        op, number = change.edit.items()
        texts = [at for at, _ in members]
        where = ("at", texts[0] if len(texts) == 1 else texts)
        yield Step(dict([op, where, number]), tuple(pair for _, pair in members))


def _arranged(named: Sequence[tuple[str, Pair]]) -> Iterator[Step]:
    """Reshapes and transposes, those that are the same together, in the order in which each leaf needs them."""
    for stage in range(3):
        groups: dict[str, tuple[Edit, list[tuple[str, Pair]]]] = {}
        for at, pair in named:
            steps = _stages(pair)[stage]
            if steps is not None:
                key = str(sorted(steps.items(), key=str))
                groups.setdefault(key, (steps, []))[1].append((at, pair))
        for edit, members in groups.values():
            op, *rest = edit.items()
            at_texts = [at for at, _ in members]
            yield Step(
                dict([op, ("at", at_texts[0] if len(at_texts) == 1 else at_texts), *rest]),
                tuple(pair for _, pair in members),
            )


def _stages(pair: Pair) -> tuple[Edit | None, Edit | None, Edit | None]:
    one = pair.form.arrangement
    return (
        None if one.before is None else {"op": "reshape", "shape": list(one.before)},
        None if one.axes is None else {"op": "transpose", "axes": list(one.axes)},
        None if one.after is None else {"op": "reshape", "shape": list(one.after)},
    )


def _moved(pairs: Sequence[Pair], aside: _Aside, tree: Sequence[LeafPath]) -> Iterator[Step]:
    """One rename of everything that changes its place: nothing is in the way of what moves at the same time."""
    plain = [
        pair
        for pair in pairs
        if pair.form.stack is None and pair.form.unstack is None and pair.changes_place
    ]
    moves = dict(_moves(with_nodes(plain, tree)))
    moves |= {at: to for at, (to, _) in aside.moves.items()}
    if len(moves) == 1 and not aside.moves:
        ((at, to),) = moves.items()
        yield Step({"op": "rename", "at": at, "to": to}, tuple(plain))
    elif moves:
        yield Step({"op": "rename", "moves": moves}, tuple(plain))


def _moves(pairs: Sequence[tuple[Family, Family]]) -> Iterator[tuple[str, str]]:
    for old, new in pairs:
        target = new.target(old)
        if target is not None:
            yield old.pattern, target
        else:
            for here, there in zip(old.members, new.members, strict=True):
                yield here.exact_pattern, target_text(there)


def _cast(named: Sequence[tuple[str, Pair]]) -> Iterator[Step]:
    groups: dict[str, list[tuple[str, Pair]]] = {}
    for at, pair in named:
        if pair.casts:
            groups.setdefault(pair.new.spec.dtype, []).append((at, pair))
    for dtype, members in groups.items():
        texts = list(dict.fromkeys(at for at, _ in members))
        where: str | list[str] = texts[0] if len(texts) == 1 else texts
        yield Step({"op": "cast", "at": where, "to": dtype}, tuple(pair for _, pair in members))
