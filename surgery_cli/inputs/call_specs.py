"""`FILE.py:NAME(ARGUMENTS)`: how an object of the user's is named on the command line."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.addresses import local_object
from surgery_cli.words.lists import quoted

EXAMPLE: Final = "e.g. `train.py:CNN` or `train.py:CNN(features=16)`"


class CallSpec(msgspec.Struct, frozen=True):
    """``FILE.py:NAME`` or ``FILE.py:NAME(ARGUMENTS)``, taken apart.

    ``name`` may have dots. ``is_call`` tells ``NAME()`` from ``NAME``.
    """

    file: Path
    name: str
    is_call: bool = False
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}


def call_spec(text: str, example: str = EXAMPLE) -> CallSpec:
    """Parse ``train.py:CNN(features=16)``; arguments are Python literals, ``true``, ``false`` and ``null``.

    ``example`` is the advice of errors.

    Raises:
        SurgeryError: it is not of that form, an address of elsewhere, or the file is not there.
    """
    file, colon, expression = local_object(text).rpartition(".py:")
    if not colon:
        raise SurgeryError(f"'{text}' does not name an object of a Python file", fix=example)
    path = Path(f"{file}.py")
    if not path.is_file():
        there = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
        raise SurgeryError(
            f"there is no file '{path}'",
            why="the folder has " + quoted(there, 8) if there else "",
            fix=example,
        )
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError as error:
        raise SurgeryError(
            f"'{expression}' is neither a name nor a call", why=error.msg, fix=example
        ) from None
    if isinstance(tree, ast.Call):
        return CallSpec(
            path,
            _dotted(tree.func, expression, example),
            True,
            tuple(literal(ast.unparse(arg)) for arg in tree.args),
            {str(k.arg): literal(ast.unparse(k.value)) for k in tree.keywords},
        )
    return CallSpec(path, _dotted(tree, expression, example))


def literal(text: str) -> Any:
    """A Python literal; ``true``, ``false`` and ``null`` in any case are themselves.

    >>> literal("true"), literal("(3, 3)"), literal("'same'")
    (True, (3, 3), 'same')

    Raises:
        SurgeryError: it is something else.
    """
    known = {"true": True, "false": False, "null": None, "none": None}
    if text.strip().lower() in known:
        return known[text.strip().lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise SurgeryError(
            f"'{text}' is not a literal",
            why="arguments are numbers, strings in quotes, true, false, null, tuples, lists or dicts",
            fix="for anything else, write a function without arguments in the file, and name that",
        ) from None


def _dotted(node: ast.expr, text: str, example: str) -> str:
    name = ast.unparse(node)
    if not all(part.isidentifier() for part in name.split(".")):
        raise SurgeryError(f"'{text}' is neither a name nor a call", fix=example)
    return name
