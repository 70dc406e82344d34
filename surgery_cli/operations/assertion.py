"""Say what must hold of leaves where the edit stands among the others."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any, cast

import msgspec

from surgery_cli.operations.asserting import Assertion, fields_of_rule
from surgery_cli.operations.base import Operation
from surgery_cli.rules.table import RULES


def _rule_fields() -> Iterator[tuple[str, Any, Any]]:
    """The fields of all rules, each of which may be left out."""
    for kind in RULES:
        annotations = typing.get_type_hints(kind, include_extras=True)
        for field in fields_of_rule(kind):
            kept = msgspec.field(name=field.encode_name, default=None)
            yield field.name, annotations[field.name] | None, kept


_DOC = """See that rules hold of leaves as they stand at this place in the plan; nothing is changed.

    What metadata tell is judged at once. Values are judged before anything is committed, while they are written if
    the leaf is written as it stands here. Without patterns, all leaves are meant. The command only looks: it takes no
    destination.
    """

_EXAMPLE = """\
op: assert
at: params
finite: true
norm: ..1000
"""

Assert = cast(
    "type[Operation]",
    msgspec.defstruct(
        "Assert",
        list(_rule_fields()),
        bases=(Assertion,),
        module=__name__,
        tag="assert",
        kw_only=True,
        frozen=True,
        namespace={
            "__doc__": _DOC,
            "example": _EXAMPLE,
            "path_fields": tuple(name for kind in RULES for name in kind.path_fields),
        },
    ),
)
