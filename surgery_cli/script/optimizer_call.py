"""An optimizer as a call of optax in a text, ``adamw(1e-3, b2=0.95)``: read as a value, never run as code."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from surgery_cli.errors import PlanError
from surgery_cli.optimizer.knowledge.factories import (
    FACTORIES,
    REFUSED,
    STATELESS,
    WITHOUT_SLOTS,
    WRAPPERS,
)
from surgery_cli.script.optimizers import is_transformation
from surgery_cli.tree.nearness import nearest
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import shortened

_LONGEST: Final = 2_000
_DEEPEST: Final = 24
_MODULES: Final = ("optax", "optax.contrib", "contrib", "optax.schedules", "schedules")
COUNTS: Final = frozenset(
    {
        "max_backtracking_steps",
        "max_linesearch_steps",
        "memory_size",
        "ns_steps",
        "num_betas",
        "rank",
    }
)
"""Settings by which an optimizer loops, or holds copies: what a trial of it costs."""
_DECAYS: Final = frozenset(
    {"adam_b1", "adam_b2", "b1", "b2", "b3", "beta3", "decay", "decay_rate", "momentum", "rho"}
)
"""Settings of optimizers: shares of what was gathered before. In schedules the names mean other things."""
_EPSILONS: Final = frozenset({"adam_eps_root", "eps", "eps_root"})
_HIGHEST_COUNT: Final = 100
_WITHOUT_SETTINGS: Final = "name the factory alone, without its settings"
_KNOWN: Final = (*FACTORIES, *WRAPPERS, *WITHOUT_SLOTS, *STATELESS, *REFUSED)
_EXAMPLE: Final = "write it as `adamw(1e-3, b2=0.95)` or `chain(clip_by_global_norm(1.0), sgd(0.1, momentum=0.9))`"


def optimizer_of(text: str) -> Any:
    """The transformation that a call of optax's own names makes; arguments are literals, or such calls.

    Raises:
        PlanError: it is no such call, or optax does not take it.
    """
    return _Reader(text).transformation()


@cache
def factories() -> Mapping[str, Callable[..., Any]]:
    """What optax and optax.contrib have that returns a transformation or a schedule, by name."""
    import optax
    from optax import contrib

    found = {name: getattr(contrib, name, None) or getattr(optax, name, None) for name in _KNOWN}
    schedules = {
        name: make for name, make in vars(optax.schedules).items() if inspect.isfunction(make)
    }
    return {name: make for name, make in {**schedules, **found}.items() if make is not None}


class _Reader:
    """Makes of a text what it says. Each node of its syntax tree is a literal, a name of optax, or a call of one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._shown = shortened(text)

    def transformation(self) -> Any:
        made = self._value(self._parsed(), 0)
        if not is_transformation(made):
            raise self._wrong(
                "it makes no optimizer",
                f"call what it makes with its settings: `{self._shown}(1e-3)`"
                if hasattr(made, "__wrapped__")
                else "name a call that returns a transformation: " + _EXAMPLE,
            )
        return made

    def _parsed(self) -> ast.expr:
        if len(self._text) > _LONGEST:
            raise self._wrong(f"it has {len(self._text):,} characters; {_LONGEST:,} are the most")
        try:
            return ast.parse(self._text.strip(), mode="eval").body
        except SyntaxError as error:
            raise self._wrong(f"it is no Python expression: {error.msg}") from None
        except (ValueError, RecursionError, MemoryError):
            raise self._wrong("it is no Python expression that can be read") from None

    def _value(self, node: ast.expr, depth: int) -> Any:
        if depth > _DEEPEST:
            raise self._wrong(f"its calls are nested more than {_DEEPEST} deep")
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
                return -value
            case ast.List(elts=parts):
                return [self._value(part, depth + 1) for part in parts]
            case ast.Tuple(elts=parts):
                return tuple(self._value(part, depth + 1) for part in parts)
            case ast.Dict(keys=keys, values=values) if None not in keys:
                pairs = zip(filter(None, keys), values, strict=True)
                return {self._key(key): self._value(value, depth + 1) for key, value in pairs}
            case ast.Name() | ast.Attribute():
                return self._factory(node)
            case ast.Call():
                return self._called(node, depth)
        raise self._wrong(
            f"`{self._of(node)}` is neither a literal nor a call of optax, and code is not evaluated"
        )

    def _key(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, str | int):
            return node.value
        raise self._wrong(f"`{self._of(node)}` is no key of a dict of params or labels")

    def _factory(self, node: ast.expr) -> Callable[..., Any]:
        """The factory of a name, which may have its module before it."""
        module, _, name = self._of(node).rpartition(".")
        made = factories().get(name)
        is_of_optax = not module or module in _MODULES
        if made is not None and is_of_optax:
            return made
        if name in _KNOWN and is_of_optax:
            way = f"; or {_WITHOUT_SETTINGS}" if name in FACTORIES else ""
            raise self._wrong(
                f"the installed optax {version('optax')} has no `{name}`",
                f"install a release that has it{way}",
            )
        close = nearest(name, factories(), 1)
        raise self._wrong(
            f"`{self._of(node)}` is no optimizer or schedule of optax or optax.contrib",
            f"did you mean `{close[0]}`?" if close else _EXAMPLE,
        )

    def _called(self, node: ast.Call, depth: int) -> Any:
        is_made = isinstance(node.func, ast.Call)  # inject_hyperparams(adamw)(1e-3)
        if not is_made and not isinstance(node.func, ast.Name | ast.Attribute):
            raise self._wrong(
                f"`{self._of(node.func)}` is no name of optax, and code is not evaluated"
            )
        make = self._value(node.func, depth + 1)
        name = self._of(node.func)
        if not callable(make):
            raise self._wrong(f"`{name}` is no function")
        if make is factories()["lookahead"]:
            inside = next((self._of(one) for one in node.args), "adam(1e-3)")
            raise self._wrong(
                f"the params of `{name}` are pairs, fast and slow ones, which no trial has",
                f"say what stands inside, whose state is found by itself: `{inside}`",
            )
        given = [self._value(argument, depth + 1) for argument in node.args]
        named = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise self._wrong("`**` is not read; name every setting")
            if keyword.arg in named:
                raise self._wrong(f"`{name}` is given `{keyword.arg}` twice")
            named[keyword.arg] = self._value(keyword.value, depth + 1)
        self._check_arguments(name, make, given, named)
        try:
            return make(*given, **named)
        except Exception as error:  # noqa: BLE001 - whatever optax says of these settings
            raise self._wrong(
                f"optax does not take `{self._of(node)}`: {_first_line(error)}"
            ) from None

    def _check_arguments(
        self, name: str, make: Callable[..., Any], given: list[Any], named: Mapping[str, Any]
    ) -> None:
        signature = inspect.signature(make)
        takes = f"it takes {', '.join(f'`{one}`' for one in signature.parameters)}"
        takes_any = any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())
        wrong = [] if takes_any else [one for one in named if one not in signature.parameters]
        if wrong:
            close = nearest(wrong[0], signature.parameters, 1)
            raise self._wrong(
                f"`{name}` has no setting `{wrong[0]}`",
                f"did you mean `{close[0]}`?" if close else takes,
            )
        try:
            bound = signature.bind(*given, **named).arguments
        except TypeError as error:
            raise self._wrong(f"`{name}`: {error}", takes) from None
        for setting, value in bound.items():
            if isinstance(value, str) and _is_number(value):
                raise self._wrong(
                    f"`{setting}` of `{name}` is the text '{value}'",
                    f"write the number without quotes: `{setting}={value}`",
                )
            wanted = _wanted_instead(make, signature.parameters[setting], value)
            if wanted:
                raise self._wrong(
                    f"`{setting}` of `{name}` is {wanted}, and `{value}` is none",
                    "write the settings as they stand in the script",
                )
            if setting in COUNTS and isinstance(value, int | float) and value > _HIGHEST_COUNT:
                raise self._wrong(
                    f"`{setting}={value}` would take too long to try out: {_HIGHEST_COUNT} is the most",
                    _WITHOUT_SETTINGS,
                )

    def _of(self, node: ast.expr) -> str:
        """The part of the text that a node is."""
        return shortened(ast.get_source_segment(self._text.strip(), node) or "…")

    def _wrong(self, why: str, fix: str = _EXAMPLE) -> PlanError:
        return PlanError(
            worded("{optimizer_kind: {}} cannot be read", self._shown),
            why=why,
            fix=fix,
            field="optimizer_kind",
        )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _wanted_instead(make: Callable[..., Any], setting: inspect.Parameter, value: Any) -> str:
    """What a setting of an optimizer must be, where ``value`` is nothing that trains; '' if it may be."""
    if make.__module__.startswith("optax.schedules"):
        return ""
    annotation = str(setting.annotation)
    takes_none = setting.default is None or "None" in annotation or "Optional" in annotation
    if value is None and setting.name == "learning_rate" and not takes_none:
        return "a number or a schedule"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    if setting.name in _DECAYS and not 0 <= value <= 1:
        return "a decay, a number from 0 to 1"
    return "a number of at least 0" if setting.name in _EPSILONS and not value >= 0 else ""


def _first_line(error: Exception) -> str:
    said = re.sub(r" at 0x[0-9a-f]+", "", (str(error).splitlines() or [""])[0])
    return f"{type(error).__name__}: {shortened(said, 200)}"
