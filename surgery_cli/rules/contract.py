"""The contract of a rule: what metadata tell of it, and with what values are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Final, Protocol

from surgery_cli.draft.check import Apart, ValueRule
from surgery_cli.draft.recipe import Draft, Output
from surgery_cli.errors import PlanError
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.containers import alike_but_for_containers, unlike_containers
from surgery_cli.tree.paths import LeafPath, PathPattern, Selection
from surgery_cli.tree.specs import LeafKind, TreeSpec
from surgery_cli.tree.targets import Places
from surgery_cli.words.advice import FieldName, worded
from surgery_cli.words.lists import listed, quoted

_SHOWN: Final = 3

_DIGITS: Final = re.compile(r"\d+(?=\D*$)")
"""The last number of a pattern: `0` of `params/layers_0/w`."""


class SelectedIn(Protocol):
    """Selects in another tree; of one that is not ``is_typed``, conditions on dtypes and axes leave nothing out."""

    def __call__(self, tree: TreeSpec, /, *, is_typed: bool = True) -> list[LeafPath]: ...


class Named:
    """What a rule is about: the leaves that an edit names in the draft as it stands there."""

    def __init__(
        self,
        leaves: Selection,
        draft: Draft,
        scene: States,
        selected_in: SelectedIn,
    ) -> None:
        """``selected_in``: the leaves of another tree that the same patterns and conditions name."""
        self.leaves, self.draft, self.scene = leaves, draft, scene
        self.selected_in = selected_in
        self._below_others: dict[int, Mapping[LeafPath, LeafPath]] = {}

    @cached_property
    def places(self) -> Places:
        """Where leaves and nodes stand."""
        return Places(self.draft.leaves)

    def below_other_containers(self, tree: TreeSpec) -> Mapping[LeafPath, LeafPath]:
        """The leaves that another tree has below a dict in place of a list, or the other way round, with its own."""
        if id(tree) not in self._below_others:
            pairs = alike_but_for_containers(self.draft.tree, tree) if self.leaves else {}
            self._below_others[id(tree)] = {p: pairs[p] for p in self.leaves if p in pairs}
        return self._below_others[id(tree)]

    def absent(self, tree: TreeSpec) -> Iterator[tuple[LeafPath, str]]:
        """Where another tree has what is not here: another container, said once, or a leaf; and in words how."""
        pairs = self.below_other_containers(tree)
        for node, (here, there) in unlike_containers(pairs).items():
            yield node, f"it is a {here} here, and a {there} there"
        alike = {*pairs.values()}
        for path in self.lacking(tree):
            if path not in alike:
                yield path, f"it is missing, there it is {tree[path].held_text}"

    def lacking(self, tree: TreeSpec) -> list[LeafPath]:
        """The leaves of another tree that are named there, and not here."""
        return [path for path in self.selected_in(tree) if path not in self.draft.leaves]


class Rule(ValueRule, frozen=True):
    """What must hold of leaves. Subclasses override what they need: most judge by one of the methods alone."""

    path_fields: ClassVar[tuple[str, ...]] = ()
    """Names, as in the plan, of fields that hold a path of a checkpoint: relative to the plan file."""
    judges_empty: ClassVar[bool] = False
    """True if leaves without values (None, empty containers) keep or break the rule as others do."""
    needs_values: ClassVar[bool] = False
    """True if the rule says nothing of leaves without values: a pattern that names no others breaks it."""

    @property
    def may_name_nothing(self) -> bool:
        """True if the rule itself says how many leaves there must be, so that none is no error."""
        return False

    def check_values(self, patterns: Sequence[str]) -> None:
        """See that what the rule says of the leaves of ``patterns`` means something, whatever the checkpoint.

        Raises:
            PlanError: it would hold of none.
        """

    def held_against(self, draft: Draft, scene: States) -> TreeSpec | None:
        """The tree whose leaves must stand here as well, those that are named there, if the rule says so of one."""
        return None

    def breach_of_selection(self, named: Named) -> str:
        """In words how the leaves as a whole break the rule, as metadata tell; '' if they do not."""
        return ""

    def nothing_judged(self, named: Named) -> str:
        """In words why nothing that is named can be judged, with which the rule is broken; '' if something can."""
        return without_values(named) if self.needs_values else ""

    def absent(self, named: Named) -> Iterable[tuple[LeafPath, str]]:
        """Places that break the rule and are not judged as leaves, as metadata tell, and in words how."""
        return ()

    def set_apart(self, named: Named) -> Iterable[Apart]:
        """The leaves of which the rule says nothing, as metadata tell: they are named beside what holds."""
        return ()

    def breach(self, path: LeafPath, output: Output, named: Named) -> str:
        """In words how a leaf breaks the rule, as metadata tell; '' if it does not."""
        return ""

    def is_told(self, path: LeafPath, output: Output, named: Named) -> bool:
        """True if metadata tell all, so that no value need be looked at."""
        return True

    def of_leaf(self, path: LeafPath, named: Named) -> Rule:
        """The rule as it is meant of this leaf, where that depends on what the leaf is."""
        return self

    def other(self, path: LeafPath, named: Named) -> Output | None:
        """The leaf with which one is compared, if the rule compares.

        Raises:
            PlanError: it is not there.
        """
        return None


def refuse_single_nodes(rule: Rule, patterns: Sequence[str]) -> None:
    """See that a rule about several nodes has a pattern that can match several, however many there are.

    Raises:
        PlanError: each pattern names one node, so that the rule would hold of every checkpoint that has it.
    """
    if any(not PathPattern(text).is_literal for text in patterns):
        return
    spread = next(
        (new for text in patterns if (new := _DIGITS.sub("*", text, count=1)) != text), ""
    )
    raise PlanError(
        worded("{} has nothing to look through", FieldName(rule.name)),
        why=f"{quoted(patterns, 2)}: a pattern without a wildcard or a range names one node alone"
        if patterns
        else "it is about the nodes that a pattern matches, and there is no pattern",
        fix=f"write {quoted([spread], 1)}"
        if spread
        else "name the nodes by a pattern: `params/layers_*`, `params/layers_{0..11}`",
        field=rule.name,
    )


def without_values(named: Named) -> str:
    """In words which patterns name nothing but leaves without values; without patterns, whether all are such."""
    leaves = named.draft.leaves

    def have_none(paths: Iterable[LeafPath]) -> bool:
        return all(leaves[path].spec.kind is LeafKind.EMPTY for path in paths)

    if not named.leaves.named:
        return "no leaf has values" if have_none(named.leaves) else ""
    said = []
    for pattern, found in named.leaves.by_pattern():
        if found and have_none(found):  # what exceptions and conditions leave out was meant so
            kinds = listed(dict.fromkeys(leaves[path].spec.type_text for path in found), _SHOWN)
            said.append(f"what '{pattern.text}' names has no values: it is {kinds}")
    return listed(said, _SHOWN)


def refuse_false(rule: Rule) -> None:
    """See that a rule that is either stated or not is not stated to be false.

    Raises:
        PlanError: it is.
    """
    if getattr(rule, rule.name) is False:
        raise PlanError(
            worded("{} states no rule", FieldName(rule.name, "false")),
            fix="take it out, or write `true`",
            field=rule.name,
        )
