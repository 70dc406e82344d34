"""What is typed, as values, without Pydantic, by which Typer converts it.

Loading that, and making an adapter for each option though nobody typed it, takes a quarter of a small edit's time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from typer.core import TyperArgument, TyperOption

if TYPE_CHECKING:
    from typer._click.core import Context, Parameter


def convert_directly(parameters: Sequence[Parameter]) -> None:
    """Let parameters take by themselves what needs no conversion; the rest is Typer's, and so are the refusals."""
    for parameter in parameters:
        if isinstance(parameter, TyperOption | TyperArgument):
            # Typer makes the parameters itself, and has no way to give it another class for them
            vars(parameter).setdefault("get_runtime_param", _Conversion(parameter).itself)


class _Conversion:
    """Stands in for Typer's conversion of one parameter."""

    def __init__(self, parameter: TyperOption | TyperArgument) -> None:
        self._by_typer = parameter.get_runtime_param
        described = parameter.type_descriptor
        self._parser = described.parameter_info.parser
        self._choices = described.choices
        self._kind = (get_args(described.annotation) or (described.annotation,))[0]

    def itself(self) -> _Conversion:
        """What Typer asks a parameter for."""
        return self

    def coerce(self, value: Any, param: TyperOption | TyperArgument, ctx: Context) -> Any:
        """The value of what was typed, or of the default."""
        takes_several = param.multiple or param.nargs == -1
        if value is None:
            return () if takes_several else None
        try:
            return list(map(self._read, value)) if takes_several else self._read(value)
        except ValueError:
            return self._by_typer().coerce(value, param=param, ctx=ctx)

    def _read(self, value: Any) -> Any:
        """One value. Raises ValueError if there is something to convert or to refuse."""
        if self._parser is not None:
            return self._parser(value)
        if value in self._choices if self._choices is not None else type(value) is self._kind:
            return value
        raise ValueError
