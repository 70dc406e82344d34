"""Which leaves an edit names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import Gathering, PlanError, Problem, raise_all
from surgery_cli.operations.base import Operation
from surgery_cli.optimizer.follow.mirroring import double_named
from surgery_cli.optimizer.follow.untold_trees import named_untold, tells_apart
from surgery_cli.resolution.no_match import moved_since, no_match, zeros_missed
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath, Match, PathPattern, Selection
from surgery_cli.tree.specs import LeafKind, has_dtype
from surgery_cli.words.advice import FieldName, Offer, Text, joined, worded
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.quantities import leaves_text, nodes_text

_SHOWN_PATHS = 4
_OPTIONAL = Text(Offer(FieldName("optional", "true"), "lets an edit match nothing"))


class NothingNamed(PlanError):
    """An edit names nothing, or not as many leaves as it says."""

    patterns: Mapping[Problem, PathPattern] = MappingProxyType({})
    """Of the problems, those of a pattern that names nothing, each with that."""
    is_too_few = True
    """False if the edit names more leaves than it says."""


class Consequence(PlanError):
    """A problem that may be there only because of another one, which is reported already."""


def select(edit: Operation, draft: Draft) -> Selection:
    """The leaves that the edit names, in the draft's order.

    Raises:
        NothingNamed: a pattern without a match, or another count than expected.
        PlanError: a wrong pattern, a text that means two leaves, or a param together with its own twin.
    """
    if not edit.patterns and not edit.selects_everything_without_at:
        raise PlanError(
            f"'{edit.name}' names no leaves",
            fix=worded("add {at} with a path or a pattern"),
            field="at",
        )
    named = _named(edit, draft)
    excluded = _excluded(edit, draft, named)
    remaining = _remaining(edit, draft, named, excluded)
    _refuse_ambiguous(named, remaining)
    selected = Selection(_filtered(edit, draft, remaining), named, excluded)
    _check_count(edit, selected, draft)
    follows = edit.follows_nothing or edit.refuses_torn_twins
    if edit.patterns and edit.twins != "named" and not follows:
        if edit.takes_twins_apart:
            for _, found in selected.by_pattern():
                _refuse_twice_named(draft, found)
        else:
            _refuse_twice_named(draft, selected)
            if edit.effect is not None and tells_apart(edit.effect):
                raise_all(named_untold(selected, draft))
    return selected


def names_any(edit: Operation, draft: Draft) -> bool:
    """False if an edit that may match nothing does so; of what cannot be told, nothing is said."""
    try:
        return bool(select(edit, draft))
    except PlanError:
        return True


def _named(edit: Operation, draft: Draft) -> dict[PathPattern, dict[LeafPath, Match]]:
    """What each pattern names; each of them must name something."""
    field = "at" if edit.at or not edit.instead_of_at else edit.instead_of_at[0]
    patterns = _compiled(edit.patterns, field)
    named = {pattern: pattern.named(draft.texts) for pattern in patterns}
    problems: dict[Problem, PathPattern] = {}
    for pattern, found in named.items() if not edit.optional else ():
        specs = [draft.leaves[path].spec for path in found]
        if missed := zeros_missed(pattern, found, draft.texts, field):
            problems[missed] = pattern
        elif not found:
            problems[_no_match(pattern, draft, field)] = pattern
        elif not any(map(edit.selectable, specs)):
            kinds = ", ".join(sorted({spec.type_text for spec in specs}))
            missed = Problem(
                f"'{pattern.text}' names nothing that '{edit.name}' applies to",
                why=f"what it names is {kinds}",
                fix="name leaves that hold values; `surgery inspect` lists them",
                field=field,
            )
            problems[missed] = pattern
    _raise_missed(problems)
    return named


def _no_match(pattern: PathPattern, draft: Draft, field: str) -> Problem:
    moved = moved_since(pattern, draft, field)
    return moved or no_match(pattern, draft.texts, draft.tree.nodes, field, _OPTIONAL)


def _raise_missed(problems: Mapping[Problem, PathPattern]) -> None:
    if problems:
        error = NothingNamed.of(problems)
        error.patterns = problems
        raise error


def _compiled(texts: Iterable[str], field: str) -> list[PathPattern]:
    patterns: list[PathPattern] = []
    gathering = Gathering()
    for text in texts:
        with gathering.catching(field=field):
            patterns.append(PathPattern(text))
    gathering.raise_if_any()
    return patterns


def _remaining(
    edit: Operation,
    draft: Draft,
    named: Mapping[PathPattern, Collection[LeafPath]],
    excluded: Collection[LeafPath],
) -> list[LeafPath]:
    """The leaves that a pattern names and no exception does, in the draft's order."""
    every: Collection[LeafPath] = draft.leaves
    if len(named) == 1:
        (every,) = named.values()
    elif edit.patterns:
        chosen = set().union(*named.values())
        every = [path for path in draft.leaves if path in chosen]
    return [path for path in every if path not in excluded]


def _excluded(
    edit: Operation, draft: Draft, named: Mapping[PathPattern, Collection[LeafPath]]
) -> frozenset[LeafPath]:
    """The leaves that exceptions leave out of what the patterns name; each of them must leave out something."""
    if not edit.exceptions:
        return frozenset()
    texts = {path: draft.texts[path] for path in _remaining(edit, draft, named, ())}
    excluded: set[LeafPath] = set()
    problems: dict[Problem, PathPattern] = {}
    for pattern in _compiled(edit.exceptions, "except"):
        found = pattern.named(texts)
        excluded.update(found)
        if missed := zeros_missed(pattern, found, texts, "except"):
            problems[missed] = pattern
        if missed or found or (edit.optional and not texts):
            continue
        problem = _no_match(pattern, draft, "except")
        if pattern.named(draft.texts):
            problem = Problem(
                f"the exception '{pattern.text}' leaves nothing out",
                why="what it matches is not named by the edit",
                fix="take it out, or correct the path",
                field="except",
            )
        problems[problem] = pattern
    _raise_missed(problems)
    return frozenset(excluded)


def _refuse_ambiguous(
    named: Mapping[PathPattern, Mapping[LeafPath, Match]], remaining: Iterable[LeafPath]
) -> None:
    """A text without wildcards must mean one place; keys with slashes can make it mean two."""
    left = set(remaining)
    problems: list[Problem] = []
    for pattern, found in named.items():
        if not pattern.is_literal:
            continue
        nodes = dict.fromkeys(match.node for path, match in found.items() if path in left)
        if len(nodes) > 1:
            spellings = sorted((node.exact_pattern for node in nodes), key=lambda s: "%" in s)
            other = next(s for s in reversed(spellings) if s != pattern.text)
            problems.append(
                Problem(
                    f"'{pattern.text}' means {len(nodes)} places",
                    why=f"a key may contain a slash, which is spelled `%2F`: {quoted(spellings, _SHOWN_PATHS)}",
                    fix=worded(
                        "write `{}` for that one, or leave it out with {except: {}}", other, other
                    ),
                    path=pattern.text,
                    field="at",
                )
            )
    raise_all(problems)


def _filtered(edit: Operation, draft: Draft, leaves: Collection[LeafPath]) -> list[LeafPath]:
    """The leaves that the edit applies to and that its `where_dtype` and `where_ndim` let through."""
    specs = {path: draft.leaves[path].spec for path in leaves}
    chosen = [
        path
        for path, spec in specs.items()
        if edit.selectable(spec)
        and (not edit.where_dtype or has_dtype(spec, edit.where_dtype))
        and (edit.where_ndim is None or (spec.has_array and len(spec.shape) == edit.where_ndim))
    ]
    if chosen or edit.optional:
        return chosen
    if not leaves:
        raise NothingNamed(
            "nothing is left to edit",
            why=worded("{except} leaves out every leaf that the edit names"),
            fix=worded("name fewer exceptions, or add {optional: true}"),
            field="except",
        )
    wanted = [worded("{where_dtype: {}}", edit.where_dtype)] if edit.where_dtype else []
    wanted += [worded("{where_ndim: {}}", edit.where_ndim)] if edit.where_ndim is not None else []
    there = sorted({spec.type_text for spec in specs.values()})
    raise NothingNamed(
        worded(
            "none of the {} leaves passes {}", len(leaves), joined(" and ", wanted) or "the edit"
        ),
        why=f"they are {listed(there, _SHOWN_PATHS)}",
        fix=worded("correct the condition, or add {optional: true}"),
        field="where_dtype" if edit.where_dtype else "where_ndim",
    )


def _check_count(edit: Operation, selected: Selection, draft: Draft) -> None:
    if edit.expect is None or (edit.optional and not selected):
        return
    leaves = [path for path in selected if draft.leaves[path].spec.kind is not LeafKind.EMPTY]
    count, _, unit = str(edit.expect).partition(" ")
    is_nodes = unit.startswith("node")
    counted = selected.nodes() if is_nodes else leaves
    if len(counted) == int(count):
        return
    there = nodes_text(len(counted)) if is_nodes else leaves_text(len(counted))
    error = NothingNamed(
        f"the edit names {there}, not {count}",
        why=f"it names {quoted(map(str, in_listed_order(counted)), _SHOWN_PATHS)}"
        if counted
        else "",
        fix=worded("correct {expect}, or the pattern"),
        field="expect",
    )
    error.is_too_few = len(counted) < int(count)
    raise error


def _refuse_twice_named(draft: Draft, selected: Collection[LeafPath]) -> None:
    """A pattern that names a param and its own twin almost never means both."""
    double = double_named(draft, selected)
    if not double:
        return
    slot = double[0]
    depth = next(
        n for n, (a, b) in enumerate(zip(slot.param, slot.path, strict=False), 1) if a != b
    )
    params, state = LeafPath(slot.param[:depth]), LeafPath(slot.path[:depth])
    raise PlanError(
        f"the edit names '{slot.param}' and its twin '{slot.path}'",
        why=f"{leaves_text(len(double))} of the optimizer state follow their params and are named as well",
        fix=worded("name one side alone (`{}/**`, `{}/**`), or say {twins: named}", params, state),
        path=str(slot.path),
        field="at",
    )
