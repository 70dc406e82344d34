"""What a plan says must hold of values, as they stand between two edits or at the end: judged before the commit."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec

from surgery_cli.draft.expression import Recipe
from surgery_cli.draft.seen import Seen, Sizes
from surgery_cli.errors import Problem, ValueRefusal
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.lists import quoted


class JudgedRefusal(ValueRefusal):
    """What is said beside the edits refuses their result: a rule, that values are finite, a probe.

    Said otherwise, the same edits pass, and what they made is what it would be.
    """


class Judged(NamedTuple):
    """What was found of a leaf, in words (``its norm is 12.3``), and as a number where it is one."""

    holds: bool
    found: str
    number: float | None = None
    apart: str = ""
    """Why it is let through, and named beside what holds, in words that follow a count of leaves."""


class ValueRule(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What must hold of the values of every leaf. Its fields are keys of the plan; the first one gives its name."""

    sees: ClassVar[type[Seen]]
    """What must be seen of values to judge them; nothing for a rule that metadata decide."""
    tells_each: ClassVar[bool] = False
    """True if the number that is found of every leaf is what is wanted."""

    @property
    def name(self) -> str:
        return self.__struct_encode_fields__[0]

    @property
    def text(self) -> str:
        """The rule as people read it: ``norm ..100``."""
        raise NotImplementedError

    @property
    def grid(self) -> tuple[int, ...] | None:
        """The shape of the blocks in which values must be seen, empty for those of the leaf itself; None for any."""
        return None

    def judge(self, seen: Any, spec: LeafSpec, /) -> Judged:
        """Whether what was ``seen`` of all values of a leaf is as it must be."""
        raise NotImplementedError


class Measured(ValueRule, frozen=True):
    """What an edit costs or loses, beside a leaf: how large that is by Frobenius norms, and at most may be."""

    what: str
    most: float = math.inf
    beyond: float = 0.0
    """What comes on top of what is seen."""
    sees: ClassVar[type[Seen]] = Sizes
    tells_each: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return self.what

    @property
    def text(self) -> str:
        return self.what if math.isinf(self.most) else f"{self.what} ..{self.most:g}"

    def judge(self, seen: Sizes, spec: LeafSpec, /) -> Judged:
        number = seen.ratio + self.beyond
        return Judged(not number > self.most, f"its {self.what} is `{number:.4g}`", number)


class CheckedLeaf(NamedTuple):
    """A leaf whose values are judged by a rule: where it stood, of what it was made, and with what it is compared."""

    path: LeafPath
    rule: ValueRule
    recipe: Recipe
    other: Recipe | None = None


Severity: TypeAlias = Literal["error", "warning"]
"""Whether what breaks a rule stops the work, or is only said."""


class InPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a policy says of one of its rules: how it is called, how much it matters, and what to tell people."""

    id: str
    severity: Severity = "error"
    message: str = ""


class Apart(msgspec.Struct, frozen=True, kw_only=True):
    """Leaves that a rule names and says nothing of: they neither keep nor break it."""

    what: str
    """How many, of what kind, and why: ``2 params of which the optimizer keeps nothing (masked)``."""
    leaves: list[str]

    def text(self, most: int = 0) -> str:
        """In a line, with the names of the leaves, of so many at most.

        >>> Apart(what="3 params without a twin", leaves=["a", "b", "c"]).text(2)
        "3 params without a twin: 'a', 'b' and 1 more"
        """
        return f"{self.what}: {quoted(self.leaves, most)}"


class Check(msgspec.Struct, frozen=True):
    """A rule that an edit of the plan (counted from 0) states of ``count`` leaves; or a policy does, of the result.

    Metadata told what breaks it (``breaches``), and that it holds of all others but those ``on`` which values are
    judged. ``file`` and ``line`` say where in a plan or policy it stands. ``apart`` are those of which it says nothing.
    """

    edit: int
    rule: ValueRule
    count: int
    on: tuple[CheckedLeaf, ...] = ()
    file: str | None = None
    line: int | None = None
    policy: InPolicy | None = None
    breaches: tuple[Problem, ...] = ()
    apart: tuple[Apart, ...] = ()

    @property
    def is_warning(self) -> bool:
        """True if what breaks it is only said."""
        return self.policy is not None and self.policy.severity == "warning"
