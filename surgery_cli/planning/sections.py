"""The keys of a plan whose values are structs of their own, beside its edits: `reshard` and `output`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from surgery_cli.errors import Problem
from surgery_cli.planning.fields import fields_of
from surgery_cli.planning.text import PlanText, nearest_fix
from surgery_cli.planning.values import Misfit, converted
from surgery_cli.settings.export import Export
from surgery_cli.settings.reshard import Reshard
from surgery_cli.tree.nested import Position

SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {"reshard": Reshard, "output": Export}


def read_section(
    text: PlanText, name: str, given: Mapping[str, Any], unfilled: Collection[Position]
) -> tuple[Any, list[Problem]]:
    """What a section says, and what is wrong with it: each of its keys that is wrong is a problem of its own.

    None where it cannot be made.
    """
    kind, values = SECTIONS[name], {}
    known = list(kind.__struct_fields__)
    problems: list[Problem] = []
    for key, value in given.items():
        here: Position = (name, key)
        if key not in known:
            fix = nearest_fix(key, known, otherwise=f"keys are {', '.join(known)}")
            problems.append(
                text.problem(here, f"`{name}` has no key `{key}`", fix=fix, field=str(key))
            )
        elif here not in unfilled:
            try:
                values[key] = converted(kind, key, value)
            except Misfit as misfit:
                problems.append(misfit_in(text, misfit, here))
    needed = [one.name for one in fields_of(kind) if one.required]
    missing = [key for key in needed if key not in given]
    problems += [
        text.problem(
            (name,), f"`{name}` needs `{key}`", fix=f"e.g. `{name}: {{{key}: …}}`", field=key
        )
        for key in missing
    ]
    is_whole = not problems and all(key in values for key in needed)
    return kind(**values) if is_whole else None, problems


def misfit_in(text: PlanText, misfit: Misfit, position: Position) -> Problem:
    """The problem with a value that its field does not take, with file and line."""
    return msgspec.structs.replace(misfit.problem, **text.place((*position, *misfit.within)))
