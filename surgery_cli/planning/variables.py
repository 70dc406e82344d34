"""Filling `${name}` in a plan: from `--set`, else from `vars:`; in the options of an edit command: from `--set`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from surgery_cli.errors import PlanError, Problem
from surgery_cli.planning.text import PlanText, nearest_fix, shown
from surgery_cli.planning.yaml_text import parse_yaml, scalar
from surgery_cli.tree.nested import Position, contents
from surgery_cli.words.lists import listed

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_.-]*"
_PLACE: Final = re.compile(r"\$\$\{|\$\{([^{}]*)(\}?)")


def filled_options(values: Mapping[str, Any], settings: Mapping[str, str]) -> dict[str, Any]:
    """The values of options with every `${name}` filled; they stay text.

    Raises:
        PlanError: a variable is not set, or a setting is not used; all of them at once.
    """
    variables = Variables(PlanText(value=values, file=""), settings, is_typed=False, kind="command")
    filled: dict[str, Any] = variables.filled()
    if variables.problems:
        raise PlanError.of(variables.problems)
    return filled


class Variables:
    """Fills a document's `${name}`, and gathers what is wrong with them in ``problems``.

    ``unfilled`` are the positions of these problems: what stands there now is not what was meant. ``is_typed``: a value
    that is exactly `${name}` takes the type that YAML gives to the setting, else everything filled is text.
    ``is_linted``: what is not set may be set when the plan is used, and stays as it stands; a default that nothing uses
    is a problem. ``kind`` is what messages call the document.
    """

    def __init__(
        self,
        text: PlanText,
        settings: Mapping[str, str],
        *,
        is_typed: bool = True,
        is_linted: bool = False,
        kind: str = "plan",
    ) -> None:
        self.text = text
        self.settings = settings
        self.is_typed = is_typed
        self.is_linted = is_linted
        self.kind = kind
        self.problems: list[Problem] = []
        self.unfilled: set[Position] = set()
        self.defaults = self._defaults()
        self.used: set[str] = set()

    def filled(self) -> Any:
        """The document without `vars`, every `${name}` filled."""
        plan = {
            self._interpolated(key, (key,)): self._value(value, (key,))
            for key, value in self.text.value.items()
            if key != "vars"
        }
        self._check_settings()
        return plan

    @property
    def values(self) -> dict[str, Any]:
        """The variables that the document names, once it was filled, with what they stand for."""
        given = {
            name: _typed(text, self.defaults.get(name)) for name, text in self.settings.items()
        }
        return {name: value for name, value in (self.defaults | given).items() if name in self.used}

    def _defaults(self) -> dict[str, Any]:
        given = self.text.value.get("vars")
        if given is None:
            return {}
        if not isinstance(given, dict):
            self._refuse(
                ("vars",), f"`vars` must be a mapping, not {shown(given)}", fix="`vars: {by: 0.5}`"
            )
            return {}
        for name, value in given.items():
            if not re.fullmatch(_NAME, name):
                self._refuse(
                    ("vars", name),
                    f"`{name}` cannot be the name of a variable",
                    fix="begin with a letter; then letters, digits, `_`, `-` and `.`",
                )
            if _holds_place(value):
                self._refuse(
                    ("vars", name),
                    f"the variable `{name}` refers to another variable",
                    why=f"`{name}: {shown(value)}`",
                    fix="write its value out: a default is taken as it stands",
                )
        return given

    def _value(self, value: Any, position: Position) -> Any:
        if isinstance(value, dict):
            filled: dict[str, Any] = {}
            for key, inner in value.items():
                name = self._interpolated(key, (*position, key))
                if name in filled:
                    self._refuse(
                        (*position, key), f"the key `{name}` stands twice once variables are filled"
                    )
                filled[name] = self._value(inner, (*position, key))
            return filled
        if isinstance(value, list | tuple):
            return [self._value(inner, (*position, at)) for at, inner in enumerate(value)]
        if not isinstance(value, str):
            return value
        whole = _PLACE.fullmatch(value)
        if self.is_typed and whole is not None and whole[2]:
            return self._looked_up(whole[1], position)
        return self._interpolated(value, position)

    def _interpolated(self, text: str, position: Position) -> str:
        def fill(place: re.Match[str]) -> str:
            if place[0] == "$${":
                return "${"
            if not place[2]:
                self._refuse(
                    position,
                    f"`{place[0]}` is not closed",
                    why=shown(text),
                    fix="write `$${` for a literal `${`",
                )
                return ""
            if place[1] in self.settings:
                self.used.add(place[1])
                return self.settings[place[1]]
            value = self._looked_up(place[1], position)
            if isinstance(value, dict | list):
                self._refuse(
                    position,
                    f"`${{{place[1]}}}` is {shown(value)} and cannot stand inside longer text",
                    why=shown(text),
                    fix=f"let the whole value be `${{{place[1]}}}`",
                )
            return value if isinstance(value, str) else json.dumps(value, default=str)

        return _PLACE.sub(fill, text)

    def _looked_up(self, name: str, position: Position) -> Any:
        self.used.add(name)
        if not re.fullmatch(_NAME, name):
            self._refuse(
                position,
                f"`${{{name}}}` does not name a variable",
                fix="write `${name}`, or `$${` for a literal `${`",
            )
        elif name in self.settings:
            return _typed(self.settings[name], self.defaults.get(name))
        elif name in self.defaults:
            return self.defaults[name]
        elif self.is_linted:
            self.unfilled.add(position)
            return f"${{{name}}}"
        else:
            known = [*self.defaults, *self.settings]
            others = f"set are {listed(known, mark='`')}" if known else "no other is set either"
            self._refuse(
                position,
                f"the variable `{name}` is not set",
                why=nearest_fix(name, known, otherwise=others),
                fix=f"give it with `--set {name}=…`"
                + (", or a default under `vars:`" if self.is_typed else ""),
            )
        return None

    def _check_settings(self) -> None:
        used = sorted(self.used)
        others = f"it uses {listed(used, mark='`')}" if used else "it uses no variables"
        for name in self.defaults if self.is_linted else ():
            if name not in self.used:
                what = f"nothing uses the variable `{name}`"
                fix = "take it out, or write `${" + name + "}` where it is meant"
                why = nearest_fix(name, used, otherwise=others)
                self._refuse(("vars", name), what, why=why, fix=fix)
        for name in self.settings:
            if name not in self.used:
                self._refuse(
                    ("vars", name) if name in self.defaults else (),
                    f"nothing in the {self.kind} uses `${{{name}}}`, which"
                    f" `--set {name}={self.settings[name]}` fills",
                    why=nearest_fix(name, used, otherwise=others),
                    fix="correct the name, or leave the setting out",
                )

    def _refuse(self, position: Position, what: str, *, why: str = "", fix: str = "") -> None:
        self.unfilled.add(position)
        field = next((str(key) for key in reversed(position) if isinstance(key, str)), None)
        self.problems.append(self.text.problem(position, what, why=why, fix=fix, field=field))


def _typed(text: str, default: Any) -> Any:
    """What a setting means: a list where the variable's default is one, or where it is written as one.

    Without a default of that sort `[0-9]` stays the text that it is in patterns: a list has a comma, or is of numbers.

    >>> _typed("1e-3", 0.5), _typed("2,3", [1]), _typed("[2, x]", None), _typed("[a-c]", None), _typed("{a,b}", None)
    (0.001, [2, 3], [2, 'x'], '[a-c]', '{a,b}')
    """
    is_list = text.startswith("[") and text.endswith("]")
    if not is_list and not isinstance(default, list):
        return scalar(text)
    try:
        found = parse_yaml(f"- {text}" if is_list else f"- [{text}]", "").value[0]
    except PlanError:
        return text
    is_meant = isinstance(default, list) or len(found) > 1
    return found if is_meant or not any(isinstance(item, str) for item in found) else text


def _holds_place(value: Any) -> bool:
    """True if ``value`` holds `${`; in a default it would be neither filled nor plainly meant."""
    return any(isinstance(item, str) and "${" in item for _, item in contents(value))
