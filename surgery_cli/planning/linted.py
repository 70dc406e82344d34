"""What a plan says beside its edits that no checkpoint could make right, or that nothing in it uses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from surgery_cli.errors import PlanError, Problem
from surgery_cli.planning.text import PlanText
from surgery_cli.tree.nested import Position, contents
from surgery_cli.words.lists import listed


def plan_problems(
    text: PlanText, document: Mapping[str, Any], unfilled: Collection[Position]
) -> Iterator[Problem]:
    """What `lint` says of a plan, its variables filled in where they are known, beside what reading it shows."""
    yield from _unused_sources(text, document, unfilled)
    yield from _unknown_kinds(text, document.get("optimizer_kind"), unfilled)


def _unused_sources(
    text: PlanText, document: Mapping[str, Any], unfilled: Collection[Position]
) -> Iterator[Problem]:
    """The sources that no text in the plan names. Where a variable is open, it may."""
    sources = document.get("sources")
    if not isinstance(sources, dict) or any(at[:1] != ("sources",) for at in unfilled):
        return
    rest = {key: value for key, value in document.items() if key != "sources"}
    said = {part for at, value in contents(rest) for part in (*at, value) if isinstance(part, str)}
    for name in filter(None, sources):
        whole = re.compile(rf"(?<!\w){re.escape(str(name))}(?!\w)")
        if not any(map(whole.search, said)):
            used = [other for other in sources if other in said]
            others = f"it uses {listed(used, mark='`')}" if used else "it uses no sources"
            yield text.problem(
                ("sources", name),
                f"nothing uses the source `{name}`",
                why=others,
                fix="take it out, or name it where it is meant",
                field=str(name),
            )


def _unknown_kinds(text: PlanText, said: Any, unfilled: Collection[Position]) -> Iterator[Problem]:
    """The names that are no optimizers; what a call says, optax alone knows."""
    from surgery_cli.optimizer.detect.stated_kind import NamedKinds

    named: dict[Position, Any] = {(): said}
    if isinstance(said, dict):
        named = {(node,): kind for node, kind in said.items()}
    for at, kind in named.items():
        position: Position = ("optimizer_kind", *at)
        if isinstance(kind, str) and position not in unfilled:
            try:
                NamedKinds(kind)
            except PlanError as error:
                for one in error.problems:
                    yield text.problem(
                        position, one.what, why=one.why, fix=one.fix, field="optimizer_kind"
                    )
