"""What programs give to the functions of the library: checked, and in the plain values that a command line knows."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from types import GenericAlias
from typing import Annotated, Any, ParamSpec, TypeAlias, TypeVar, get_type_hints

import msgspec
import numpy as np

from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.operations.base import Operation
from surgery_cli.planning.values import Misfit, converted
from surgery_cli.settings.declaration import settings_of
from surgery_cli.settings.shared import Memory
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.nested import contents

Place: TypeAlias = str | os.PathLike[str]
"""Where something stands, as on the command line: a path, `ROOT@N`, an address of a bucket."""

_Struct = TypeVar("_Struct", bound=msgspec.Struct)
_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")


def plain(value: Any) -> Any:
    """A value as a plan file would hold it: operations as their fields, numbers and arrays of NumPy as Python's.

    Raises:
        PlanError: it holds itself.
    """
    try:
        return _plain(value)
    except RecursionError:
        raise PlanError(
            "a value holds itself, or is nested too deeply", fix="see `surgery schema`"
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Operation):
        fields = msgspec.structs.fields(value)
        said = {one.encode_name: _plain(getattr(value, one.name)) for one in fields}
        defaults = {one.encode_name: _plain(one.default) for one in fields}
        given = {name: one for name, one in said.items() if one != defaults[name]}
        return {"op": type(value).__struct_config__.tag, **given}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist() if value.dtype.kind != "V" else value.astype(np.float64).tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(inner) for inner in value]
    return value


def settings_as(kind: type[_Struct], settings: Mapping[str, Any]) -> _Struct:
    """The settings that a function is called with, as a struct.

    Raises:
        PlanError: there is no such setting, or it takes something else; all problems at once.
    """
    problems: list[Problem] = []
    values: dict[str, Any] = {}
    for name, given in settings.items():
        if name not in kind.__struct_fields__:
            near = nearest(name, kind.__struct_fields__)
            fix = f"perhaps `{near[0]}`" if near else "the options of the command are its settings"
            problems.append(Problem(f"there is no setting `{name}`", fix=fix, field=name))
            continue
        problems += _convert(kind, name, given, values)
    raise_all(problems)
    return kind(**values)


def with_checked_arguments(function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
    """The function, called with nothing but what its annotations say; else it raises PlanError, as commands do."""
    signature = inspect.signature(function)

    @wraps(function)
    def called(*given: _Given.args, **settings: _Given.kwargs) -> _Result:
        bound = signature.bind(*given, **settings)
        kind = _arguments_of(function)
        problems: list[Problem] = []
        for name in kind.__struct_fields__:
            if name in bound.arguments:
                problems += _convert(kind, name, bound.arguments[name], bound.arguments)
        raise_all(problems)
        return function(*bound.args, **bound.kwargs)

    return called


@cache
def _arguments_of(function: Callable[..., Any]) -> type[msgspec.Struct]:
    """A struct of the arguments whose annotations tell all that they may be."""
    hints = get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        hint = _NARROWER.get(name) or _PLAIN.get(hints[name], hints[name])
        if parameter.kind is parameter.VAR_POSITIONAL:
            hint = GenericAlias(tuple, (hint, ...))
        if parameter.kind is not parameter.VAR_KEYWORD and name not in _READ_ELSEWHERE:
            fields.append((name, hint))
    return msgspec.defstruct(function.__name__, fields, kw_only=True)


def _is_odd(text: str) -> bool:
    """True for text with a null, which no path has, or with half of a surrogate pair, which is no UTF-8."""
    return re.search("[\0\ud800-\udfff]", text) is not None


_PLAIN: dict[Any, Any] = {Place: str, Place | None: str | None, Mapping[str, Any]: dict[str, Any]}
"""What msgspec knows in the place of annotations."""

_FROM_ZERO = Annotated[float, msgspec.Meta(ge=0)]
_NARROWER: dict[str, Any] = {
    "memory_bytes": Memory,
    "rtol": _FROM_ZERO,
    "atol": _FROM_ZERO,
    "input": str | tuple[str, ...],
}
"""What arguments of these names take."""

_READ_ELSEWHERE = ("plan", "policy")


def _convert(
    kind: type[msgspec.Struct], name: str, given: Any, values: dict[str, Any]
) -> list[Problem]:
    """Put the value of a field among ``values``; what is wrong with it, if something is."""
    value = plain(given)
    odd = next((text for _, text in contents(value) if isinstance(text, str) and _is_odd(text)), "")
    if odd:
        return [Problem(f"`{name}` holds a character that no file has: {odd!a}", field=name)]
    try:
        values[name] = converted(kind, name, value)
    except Misfit as misfit:
        return [misfit.problem]
    declared = settings_of(kind).get(name)
    least = None if declared is None else declared.least
    if least is not None and values[name] is not None and values[name] < least:
        return [Problem(f"`{name}` must be at least {least}, not {values[name]}", field=name)]
    return []
