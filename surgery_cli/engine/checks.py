"""Rules on values, judged while blocks pass: of what is written, then; of the rest, in a pass of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import msgspec

from surgery_cli.draft.check import Check, CheckedLeaf, Judged, JudgedRefusal
from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.kernel import Kit, Window
from surgery_cli.draft.seen import Seen
from surgery_cli.engine.digests import refuse_many_blocks
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.engine.grid import block_shape, start_of
from surgery_cli.engine.judged_reads import by_chunk, held_at_once
from surgery_cli.engine.looks import LOOKS, Cut
from surgery_cli.engine.measurements import Measurements
from surgery_cli.engine.reading import Readable, Values
from surgery_cli.engine.sights import Grid, Sight, Sights
from surgery_cli.errors import Problem
from surgery_cli.store.write.item_writer import ItemWriter

_CORRECT: Final = "correct what comes before it, or the rule; `surgery inspect --stats` shows what a checkpoint holds"


class Finding(NamedTuple):
    """What was found of a leaf, and by which check."""

    check: Check
    leaf: CheckedLeaf
    judged: Judged


class Checks:
    """The checks of a run, by what their leaves were made of."""

    def __init__(
        self,
        checks: Sequence[Check],
        sources: Mapping[str, Readable],
        kit: Kit,
        measurements: Measurements,
        memory_bytes: int,
        judging_bytes: int | None = None,
    ) -> None:
        """``judging_bytes``: what decides in which parts values are read, if that is not ``memory_bytes``."""
        self._checks = checks
        self._sights = Sights(checks, memory_bytes if judging_bytes is None else judging_bytes)
        self._watched: dict[Sight, Watched] = {}
        self._passing: dict[int, Sight] = {}
        for leaf in (leaf for check in checks for leaf in check.on):
            sight = self._sights.of(leaf)
            if sight not in self._watched:
                self._watched[sight] = Watched(leaf, sight)
            beside: Beside | Cut | None = None
            if leaf.other is not None:
                read = sources if sight.parts is None else by_chunk(sources, leaf.other)
                block = None if sight.parts is None else sight.block
                beside = Beside(leaf.other, read, kit, measurements, memory_bytes, block)
            elif sight.grid is not None and leaf.rule.grid is not None:
                refuse_many_blocks(leaf.recipe.spec, sight.grid)
                beside = Cut(sight.grid)
            self._watched[sight].expect(leaf, beside)

    def of(self, recipe: Recipe) -> Watched | None:
        """What is to be seen of these values, which are to be written, unless somebody looks at them already."""
        sight = self._passing.get(id(recipe))
        watched = None if sight is None else self._watched.get(sight)
        if watched is None or watched.is_taken:
            return None
        watched.is_taken = True
        return watched

    def left(self, writers: Iterable[ItemWriter]) -> list[Watched]:
        """What none of the ``writers`` sees, taken: made of something else than what they write, or in other blocks."""
        made = (leaf for writer in writers for leaf in writer.plan.made)
        self._passing = self._sights.passing(made)
        seen = set(self._passing.values())
        found = [watched for sight, watched in self._watched.items() if sight not in seen]
        for watched in found:
            watched.is_taken = True
        return found

    def left_if_refused(self) -> list[Watched]:
        """What only writing would show, taken, if a rule is broken already: all that is broken is then said at once."""
        if all(check.is_warning for check, _ in breaches(self.findings())):
            return []
        found = [watched for watched in self._watched.values() if not watched.is_taken]
        for watched in found:
            watched.is_taken = True
        return found

    def seen(self) -> list[_SeenOfLeaf]:
        """What was seen so far, leaf by leaf: values that another process can take over."""
        return [watched.all_seen() for watched in self._watched.values()]

    def take_over(self, seen: Sequence[_SeenOfLeaf]) -> None:
        """Add what another process has ``seen`` of the same leaves, in the same order."""
        for watched, of_leaf in zip(self._watched.values(), seen, strict=True):
            watched.take_over(of_leaf)

    def findings(self) -> list[Finding]:
        """What was found of every leaf that was looked at to its end, rule by rule, in the order of the plan."""
        return [
            Finding(check, leaf, leaf.rule.judge(watched.seen(leaf), leaf.recipe.spec))
            for check in self._checks
            for leaf in check.on
            if (watched := self._watched[self._sights.of(leaf)]).is_taken
        ]


def taken_over(kind: type[Seen], values: Sequence[Any]) -> Any:
    """What another process has seen, of a kind, from the plain values as which it comes."""
    return msgspec.convert(values, kind)


class Watched:
    """One leaf as it stood somewhere in the plan, and everything that is to be seen of its values."""

    def __init__(self, leaf: CheckedLeaf, sight: Sight) -> None:
        """``sight``: how they are read where they are read for that alone."""
        self.path, self.recipe, self.sight = leaf.path, leaf.recipe, sight
        self.is_taken = False
        self._looks: dict[_Key, Beside | Cut | None] = {}
        self._seen: dict[_Key, dict[tuple[int, ...], Any]] = {}
        self._lock = threading.Lock()

    def expect(self, leaf: CheckedLeaf, beside: Beside | Cut | None) -> None:
        """One more rule for these values, and the values with which they are compared, or how they are cut."""
        self._looks.setdefault(_key(leaf), beside)

    def add(self, window: Window, values: Values) -> None:
        """A block of the values. May be called from threads."""
        for key, beside in self._looks.items():
            seen = LOOKS[key[0]](values, None if beside is None else beside.block(window))
            with self._lock:
                self._seen.setdefault(key, {})[tuple(part.start for part in window)] = seen

    def put(self, region: Window, seen: Any) -> None:
        """What the only look at them has seen in a region. May be called from threads."""
        (key,) = self._looks
        with self._lock:
            self._seen.setdefault(key, {})[start_of(region)] = seen

    def seen(self, leaf: CheckedLeaf) -> Any:
        """What was seen in all blocks, joined in C order: the same, whoever came first."""
        blocks = self._seen[_key(leaf)]
        return reduce(leaf.rule.sees.joined, (blocks[start] for start in sorted(blocks)))

    def all_seen(self) -> _SeenOfLeaf:
        """What was seen, look by look: by where blocks begin."""
        return [list(self._seen.get(key, {}).items()) for key in self._looks]

    def take_over(self, seen: _SeenOfLeaf) -> None:
        """Add what another process has seen of other blocks."""
        for key, blocks in zip(self._looks, seen, strict=True):
            self.is_taken |= len(blocks) > 0
            self._seen.setdefault(key, {}).update(
                (tuple(start), taken_over(key[0], values)) for start, values in blocks
            )

    def working_bytes(self, block: tuple[int, ...], tile_elements: int | None) -> int:
        """Bytes in memory while values are compared with others."""
        others = (one for one in self._looks.values() if isinstance(one, Beside))
        return sum(one.held_bytes(block, tile_elements) for one in others)


_Key = tuple[type[Seen], int]
_SeenOfLeaf = list[list[tuple[tuple[int, ...], Any]]]


def _key(leaf: CheckedLeaf) -> _Key:
    return leaf.rule.sees, id(leaf.other)


class Beside:
    """Values with which a leaf is compared, block by block."""

    def __init__(
        self,
        recipe: Recipe,
        sources: Mapping[str, Readable],
        kit: Kit,
        measurements: Measurements,
        memory_bytes: int,
        block: Grid | None = None,
    ) -> None:
        """``block``: the shape of the blocks that are asked for, if they are not the leaf's own."""
        shape = recipe.spec.shape
        block = block_shape(recipe.spec, recipe.spec.write_shape) if block is None else block
        self._evaluation = Evaluation(recipe, sources, kit, block, measurements, memory_bytes)
        is_whole = self._evaluation.composition.is_whole
        self._all: Window | None = tuple(slice(0, n) for n in shape) if is_whole else None
        self._recipe, self._memory_bytes = recipe, memory_bytes
        self._whole: Values | None = None
        self._lock = threading.Lock()

    def held_bytes(self, block: Grid, tile_elements: int | None) -> int:
        """Bytes in memory while a block is there."""
        return held_at_once(self._recipe, block, self._memory_bytes, tile_elements)

    def block(self, window: Window) -> Values:
        """The values of a block; where the leaf cannot be made in blocks, all of it is held."""
        if self._all is None:
            return self._evaluation.block(window)
        with self._lock:
            if self._whole is None:
                self._whole = self._evaluation.block(self._all)
        return self._whole[window] if window else self._whole


def refuse_breaches(findings: Sequence[Finding]) -> None:
    """See that every rule holds, but for those of a policy that only warn.

    Raises:
        ValueRefusal: some do not; every leaf with the rule that it breaks, and what was found.
    """
    _refuse(problem for check, problem in breaches(findings) if not check.is_warning)


def refuse_known_breaches(checks: Sequence[Check]) -> None:
    """See that metadata show nothing that breaks a rule of a policy, but for those that only warn.

    Raises:
        ValueRefusal: they do.
    """
    _refuse(problem for check in checks if not check.is_warning for problem in check.breaches)


def _refuse(breaches: Iterable[Problem]) -> None:
    found = list(breaches)
    if found:
        raise JudgedRefusal.of(found)


def breaches(findings: Sequence[Finding]) -> Iterator[tuple[Check, Problem]]:
    """Every leaf that breaks a rule, with the rule and what was found."""
    for check, leaf, judged in findings:
        if not judged.holds:
            said = check.policy.message if check.policy is not None else ""
            yield (
                check,
                Problem(
                    f"'{leaf.path}' breaks `{leaf.rule.text}`",
                    why=judged.found,
                    fix=said or _CORRECT,
                    path=str(leaf.path),
                    file=check.file,
                    line=check.line,
                    field=check.rule.name,
                ),
            )
