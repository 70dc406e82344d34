"""Operations that make one leaf of several: in the order of the numbers in their paths, or of the patterns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from surgery_cli.draft.arrangement import Arrangement
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Gathering, PlanError, Problem, raise_all
from surgery_cli.inputs.limits import LEAVES
from surgery_cli.operations.regrouping import Regrouping, check_joinable, differences
from surgery_cli.operations.series_notes import series_notes
from surgery_cli.optimizer.follow.origins import Origin
from surgery_cli.tree.paths import LeafPath, Match, PathPattern, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.tree.targets import Places, Target, check_targets, with_number
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Note
from surgery_cli.words.series import folded


class Joining(Regrouping):
    """Leaves become one, whose place leaves out the number that counts them. Subclasses say how, and what is alike."""

    to: Annotated[
        str,
        Meta(
            description=r"Where the leaf or subtree stands that is made of them; `\1`, `\2` stand for the wildcards of"
            " `at` in order. The number that it does not repeat counts the parts."
        ),
    ]

    why_alike: ClassVar[str] = ""
    """Why the parts must be alike, in words."""

    def map(self, specs: Sequence[LeafSpec]) -> Arrangement:
        """How leaves become one that are alike.

        Raises:
            PlanError: they have no such axis.
        """
        raise NotImplementedError

    def check_values(self) -> None:
        super().check_values()
        check_targets(dict.fromkeys(self.patterns, self.to))

    def origins(self, selected: Selection, draft: Draft) -> Mapping[LeafPath, Origin]:
        found: dict[LeafPath, Origin] = {}
        gathering = Gathering()
        for new, paths in groups_of(selected, self.to, draft).items():
            specs = [draft.leaves[path].spec for path in paths]
            unlike = list(differences(paths, specs, self.why_alike, self.along))
            gathering.problems += unlike
            is_empty = bool(unlike) or specs[0].kind is LeafKind.EMPTY
            with gathering.catching(path=str(paths[0])):
                if not is_empty:
                    check_joinable(paths[0], specs[0], self.name)
                found[new] = Origin(paths, None if is_empty else self.map(specs))
        gathering.raise_if_any()
        return found

    def notes(self, selected: Selection, draft: Draft) -> Iterator[Note]:
        yield from super().notes(selected, draft)
        yield from series_notes(selected, self.to, draft.leaves)


class _Node(NamedTuple):
    """What a pattern matches: where it is to go, and the numbers in its path that do not say where."""

    match: Match
    goal: LeafPath
    free: tuple[str, ...]


def groups_of(selected: Selection, to: str, draft: Draft) -> dict[LeafPath, tuple[LeafPath, ...]]:
    """The leaves that become one, by where it stands: of every pattern in turn, by the number that ``to`` leaves out.

    Raises:
        PlanError: there is no such number or pattern, something is missing in the series, or a leaf is named twice.
    """
    gathering = Gathering()
    found: dict[LeafPath, dict[LeafPath, PathPattern]] = {}
    for pattern, matches in selected.by_pattern():
        with gathering.catching():
            for new, leaves in _groups(pattern, matches, to, draft).items():
                for leaf in leaves:
                    if leaf in found.setdefault(new, {}):
                        gathering.problems.append(_twice(leaf))
                    found[new][leaf] = pattern
    gathering.raise_if_any()
    patterns = list(selected.named)
    raise_all(_lacking(found, patterns))
    if len(patterns) == 1 and all(len(leaves) == 1 for leaves in found.values()):
        match = next(iter(selected.named[patterns[0]].values()))
        if not Target(to).leaves_out(patterns[0], len(match.groups)):
            raise PlanError(
                f"'{patterns[0].text}' names nothing that could be joined at '{to}'",
                why=worded(
                    "what is joined has numbers in {at} that {to} does not repeat, or patterns of its own"
                ),
                fix=worded(
                    "write {at: params/layers_{{0..11}}} and {to: params/layers}, or a list in {at}"
                ),
                field="at",
            )
    return {new: tuple(leaves) for new, leaves in found.items()}


def _groups(
    pattern: PathPattern, matches: Mapping[LeafPath, Match], to: str, draft: Draft
) -> dict[LeafPath, list[LeafPath]]:
    """The leaves that one pattern gives to each place, in the order of their numbers."""
    target, places = Target(to), Places(draft.leaves)
    nodes: dict[LeafPath, _Node] = {}
    families: dict[LeafPath, list[_Node]] = {}
    column = None
    for match in matches.values():
        if match.node not in nodes:
            free = target.leaves_out(pattern, len(match.groups))
            column = free
            texts = tuple(match.groups[group] for group in free)
            goal = target.place(match, pattern, places)
            nodes[match.node] = _Node(match, goal, texts)
            families.setdefault(goal, []).append(nodes[match.node])
    series = _Series(pattern, column or [])
    raise_all(_doubtful(series, families))
    columns = {goal: series.column(family) for goal, family in families.items()}
    numbers = {node: series.number(node, columns[node.goal]) for node in nodes.values()}
    expected = series.expected(numbers.values())
    raise_all(_same_numbers(numbers))
    found: dict[LeafPath, dict[int, LeafPath]] = {}
    for leaf, match in matches.items():
        node = nodes[match.node]
        found.setdefault(node.goal / match.tail, {})[numbers[node]] = leaf
    missing = dict.fromkeys(
        text
        for goal, family in families.items()
        for text in series.missing(family, numbers, expected)
    )
    if not missing:
        missing = dict.fromkeys(_leaves_missing(found, matches, nodes, numbers))
    raise_all(_gap(missing))
    return {new: [leaves[n] for n in expected if n in leaves] for new, leaves in found.items()}


class _Series:
    """The number by which a pattern tells leaves apart that become one; ``free`` are the groups that may hold it."""

    def __init__(self, pattern: PathPattern, free: list[int]) -> None:
        self._pattern, self._free = pattern, free

    def column(self, family: list[_Node]) -> int | None:
        """Which of the free groups differs; None if none does.

        Raises:
            PlanError: several do, or what differs is no number.
        """
        columns = [*zip(*(node.free for node in family), strict=True)]
        varying = [n for n, texts in enumerate(columns) if len(set(texts)) > 1]
        if len(varying) > 1:
            raise PlanError(
                f"'{self._pattern.text}' differs in {len(varying)} places from one leaf to the next",
                why=f"{quoted((node.match.node for node in family), 3)} would all become a part of '{family[0].goal}'",
                fix=worded(r"say in {to} which of them stays, such as `\1` for the first wildcard"),
                field="to",
            )
        texts = columns[varying[0]] if varying else ()
        if not all(text.isdecimal() for text in texts):
            raise PlanError(
                f"'{self._pattern.text}' does not say in which order its leaves go",
                why=f"{quoted(dict.fromkeys(texts), 3)} are no numbers",
                fix=worded("name them one by one, in their order, as a list in {at}"),
                field="at",
            )
        return varying[0] if varying else None

    def number(self, node: _Node, column: int | None) -> int:
        if column is None:  # the one number of its family
            column = next((n for n, text in enumerate(node.free) if text.isdecimal()), None)
        return 0 if column is None else int(node.free[column])

    def expected(self, numbers: Iterable[int]) -> range:
        """All numbers of the series, in order: those of a range, else those from the smallest to the largest.

        Raises:
            PlanError: these are more than a tree may have leaves.
        """
        there = [*numbers]
        ranges = self._pattern.ranges
        said = next((ranges[group].numbers for group in self._free if group in ranges), None)
        found = range(min(there, default=0), max(there, default=-1) + 1) if said is None else said
        count = (found.stop - found.start) // found.step  # a length has 63 bits at most
        LEAVES.check(count, f"the series of '{self._pattern.text}'", PlanError)
        return found

    def missing(
        self, family: list[_Node], numbers: Mapping[_Node, int], expected: Iterable[int]
    ) -> Iterator[str]:
        """The paths of the nodes that are not there."""
        there = {numbers[node] for node in family}
        for number in expected:
            if number not in there:
                yield self._path(family[0], number)

    def _path(self, node: _Node, number: int) -> str:
        """The path of a node with another number."""
        group = next(
            (g for g, text in zip(self._free, node.free, strict=True) if text.isdecimal()), None
        )
        if group is None:
            return node.match.node.spelling if node.match.is_spelled else node.match.node.text
        return with_number(node.match, group, number)


def _doubtful(series: _Series, families: Mapping[LeafPath, list[_Node]]) -> Iterator[Problem]:
    """Families whose leaves have no order."""
    for family in families.values():
        try:
            series.column(family)
        except PlanError as error:
            yield error.problems[0]


def _leaves_missing(
    found: Mapping[LeafPath, Mapping[int, LeafPath]],
    matches: Mapping[LeafPath, Match],
    nodes: Mapping[LeafPath, _Node],
    numbers: Mapping[_Node, int],
) -> Iterator[str]:
    """The leaves that some nodes of a family have, and others have not."""
    families: dict[LeafPath, dict[int, _Node]] = {}
    for node in nodes.values():
        families.setdefault(node.goal, {})[numbers[node]] = node
    for leaves in found.values():
        match = matches[next(iter(leaves.values()))]
        for number, node in families[nodes[match.node].goal].items():
            if number not in leaves:
                yield str(node.match.node / match.tail)


def _same_numbers(numbers: Mapping[_Node, int]) -> Iterator[Problem]:
    """Nodes for which there is one place, as for `1` and `01`."""
    first: dict[tuple[LeafPath, int], LeafPath] = {}
    for node, number in numbers.items():
        path = node.match.node
        there = first.setdefault((node.goal, number), path)
        if there != path:
            yield Problem(
                f"'{there}' and '{path}' both have the number {number}",
                why=f"only one of them could become part {number} of '{node.goal}'",
                fix=worded(
                    r"name one series in {at}, or say in {to} what tells two apart: `\1` for the first wildcard"
                ),
                path=str(path),
                field="at",
            )


def _gap(missing: Iterable[str]) -> Iterator[Problem]:
    series = folded(missing)
    if series:
        yield Problem(
            f"{quoted(series, 4)} {'are' if len(series) > 1 or '{' in series[0] else 'is'} not there",
            why="a series of layers has no gaps, and every layer has the same leaves",
            fix=worded("name a series that is whole, or leave what others lack out with {except}"),
            path=series[0],
            field="at",
        )


def _lacking(
    found: Mapping[LeafPath, Mapping[LeafPath, PathPattern]], patterns: list[PathPattern]
) -> Iterator[Problem]:
    """Places for which a pattern has nothing, while another has."""
    for new, leaves in found.items():
        there = {*leaves.values()}
        lacking = [pattern.text for pattern in patterns if pattern not in there]
        if lacking:
            yield Problem(
                f"'{new}' would be made of {quoted(leaves, 2)} alone",
                why=f"{quoted(lacking, 2)} {'name' if len(lacking) > 1 else 'names'} nothing that goes there",
                fix=worded("correct the patterns in {at}, or leave it out with {except}"),
                path=str(new),
                field="at",
            )


def _twice(leaf: LeafPath) -> Problem:
    return Problem(
        f"'{leaf}' is named by two patterns",
        why="it has one place among those that become one leaf",
        fix="name it once",
        path=str(leaf),
        field="at",
    )
