"""How many leaves there must be."""

from __future__ import annotations

import re
from typing import Annotated, Final

from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.rules.bounds import Bounds
from surgery_cli.rules.contract import Named, Rule
from surgery_cli.tree.listing import in_listed_order
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.quantities import leaves_text, nodes_text

_SHOWN_PATHS: Final = 4
_COUNT: Final = re.compile(r"([0-9. ]+?)(?: (leaf|leaves|nodes?))?")


class Exists(Rule, frozen=True):
    """Whether there are such leaves at all."""

    exists: Annotated[
        bool, Meta(description="`true`: every pattern names something; `false`: none does.")
    ]

    @property
    def text(self) -> str:
        return "exists" if self.exists else "does not exist"

    @property
    def may_name_nothing(self) -> bool:
        return not self.exists

    def breach_of_selection(self, named: Named) -> str:
        if self.exists or not named.leaves:
            return ""
        return f"there must be none, and there stand {_shown(named.leaves)}"


class Count(Rule, frozen=True):
    """How many leaves there are, or of what the patterns match."""

    count: Annotated[
        Annotated[int, Meta(ge=0)] | Annotated[str, Meta(examples=["10..14 nodes"])],
        Meta(description="How many leaves; `12 nodes` counts what the patterns match."),
    ]

    def __post_init__(self) -> None:
        _ = self._bounds

    @property
    def text(self) -> str:
        return f"count {self.count}"

    @property
    def may_name_nothing(self) -> bool:
        return 0 in self._bounds

    @property
    def _unit(self) -> str:
        found = _COUNT.fullmatch(str(self.count))
        return (found[2] or "leaves") if found else "leaves"

    @property
    def _bounds(self) -> Bounds:
        found = _COUNT.fullmatch(str(self.count))
        if found is None:
            raise PlanError(
                worded("{count} takes a number, not '{}'", self.count),
                fix="write `12`, `10..14` or `12 nodes`",
                field="count",
            )
        number = found[1].strip()
        return Bounds.of(int(number) if number.isdecimal() else number, "count")

    def breach_of_selection(self, named: Named) -> str:
        bounds = self._bounds
        is_nodes = self._unit.startswith("node")
        there = named.leaves.nodes() if is_nodes else _with_values(named.draft, list(named.leaves))
        if len(there) in bounds:
            return ""
        count = nodes_text(len(there)) if is_nodes else leaves_text(len(there))
        return f"there must be {bounds}, and there are {count}" + (
            f": {_shown(there)}" if there else ""
        )


def _with_values(draft: Draft, leaves: list[LeafPath]) -> list[LeafPath]:
    return [path for path in leaves if draft.leaves[path].spec.kind is not LeafKind.EMPTY]


def _shown(paths: list[LeafPath] | tuple[LeafPath, ...]) -> str:
    return quoted(map(str, in_listed_order(paths)), _SHOWN_PATHS)
