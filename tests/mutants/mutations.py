"""Every single change of a module that a test should notice, as source text."""

import ast
import copy
from typing import NamedTuple

_COMPARED = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


class Mutant(NamedTuple):
    """A module with one change; ``line`` is where it stands in the module as it is."""

    line: int
    change: str
    source: str


def mutants_of(source):
    """All mutants of a module, in its order."""
    tree = ast.parse(source)
    found = []
    for number, (node, change, _) in enumerate(_changes(tree)):
        changed = copy.deepcopy(tree)
        _, _, apply = list(_changes(changed))[number]
        apply()
        found.append(Mutant(node.lineno, change, ast.unparse(ast.fix_missing_locations(changed))))
    return found


def _changes(tree):
    """Where something can be changed: the node, how it is said, and what does it."""
    for node, parent in _code(tree):
        match node:
            case ast.Compare(ops=[op]) if type(op) in _COMPARED:
                other = _COMPARED[type(op)]
                yield (
                    node,
                    f"{ast.unparse(node)}: {other.__name__}",
                    _setting(node, "ops", [other()]),
                )
            case ast.BoolOp(op=op):
                other = ast.Or if isinstance(op, ast.And) else ast.And
                yield node, f"{ast.unparse(node)}: {other.__name__}", _setting(node, "op", other())
            case ast.UnaryOp(op=ast.Not()):
                yield (
                    node,
                    f"{ast.unparse(node)}: without not",
                    _replacing(parent, node, node.operand),
                )
            case ast.BinOp(op=op) if type(op) in _COMPUTED and not isinstance(
                node.left, ast.JoinedStr
            ):
                other = _COMPUTED[type(op)]
                yield node, f"{ast.unparse(node)}: {other.__name__}", _setting(node, "op", other())
            case ast.Constant(value=bool(value)):
                yield node, f"{value}: {not value}", _setting(node, "value", not value)
            case ast.Constant(value=int(value)):
                yield node, f"{value}: {value + 1}", _setting(node, "value", value + 1)
            case ast.IfExp():
                yield node, f"{ast.unparse(node)}: exchanged", _exchanging(node)
            case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign():
                yield (
                    node,
                    f"{ast.unparse(node)[:60]}: left out",
                    _replacing(parent, node, ast.Pass()),
                )
            case ast.Continue():
                yield node, "continue: break", _replacing(parent, node, ast.Break())


def _code(node, parent=None):
    """The nodes that run, each with its parent: no annotations, no words of messages, nothing for types alone."""
    yield node, parent
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params") or isinstance(
            node, ast.JoinedStr
        ):
            continue
        if isinstance(node, ast.Raise) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ):
            continue
        if isinstance(node, ast.AnnAssign) and isinstance(parent, ast.ClassDef):
            continue  # declarations of fields
        if isinstance(node, ast.ClassDef) and name == "keywords":
            continue
        for below in value if isinstance(value, list) else [value]:
            if isinstance(below, ast.AST):
                yield from _code(below, node)


def _setting(node, name, value):
    return lambda: setattr(node, name, value)


def _exchanging(node):
    def exchange():
        node.body, node.orelse = node.orelse, node.body

    return exchange


def _replacing(parent, node, other):
    def replace():
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, other)
            elif isinstance(value, list) and any(one is node for one in value):
                value[[one is node for one in value].index(True)] = other

    return replace
