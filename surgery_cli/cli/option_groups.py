"""Groups of options: functions whose parameters are options, given to commands and to other groups."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Made = TypeVar("Made")
"""What a command or a group returns."""


def taking(**groups: Callable[..., Any]) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    """Give a command the options of ``groups``; each group's value arrives under its name here."""

    def decorate(command: Callable[..., Made]) -> Callable[..., Made]:
        own = [
            parameter
            for parameter in options_of(command)
            if parameter.name not in groups and parameter.kind is not parameter.VAR_KEYWORD
        ]
        return with_parameters(command, own, groups)

    return decorate


def with_parameters(
    command: Callable[..., Made],
    own: Sequence[inspect.Parameter],
    groups: dict[str, Callable[..., Any]],
) -> Callable[..., Made]:
    """``command`` under a signature of its ``own`` parameters, then those of every group."""
    signatures = {name: options_of(group) for name, group in groups.items()}

    @functools.wraps(command)
    def wrapped(**given: Any) -> Made:
        made = {
            name: groups[name](**{p.name: given.pop(p.name) for p in parameters})
            for name, parameters in signatures.items()
        }
        return command(**given, **made)

    parameters = [*own, *(p for shared in signatures.values() for p in shared)]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {p.name: p.annotation for p in parameters}
    del wrapped.__wrapped__
    return wrapped


def options_of(group: Callable[..., Any]) -> list[inspect.Parameter]:
    """The options of a group or a command, as parameters with evaluated annotations."""
    # these bring the whole use-case layer, which is imported only when a command runs
    names = {"Options": Any, "ProbeOptions": Any}
    return list(inspect.signature(group, eval_str=True, locals=names).parameters.values())
