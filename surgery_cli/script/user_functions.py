"""Functions of the user's that edits call: loaded once, and held to the file that they were loaded from."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli.draft.user_function import UserFunction
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.call_specs import CallSpec, call_spec
from surgery_cli.operations.map import Map
from surgery_cli.planning import Plan
from surgery_cli.script.user_calls import Calls
from surgery_cli.script.user_code import Say, load_object

_EXAMPLE: Final = "name a function: `edit.py:halve`, or `edit.py:scaled(by=0.5)`"


class UserFunctions:
    """Those of one run; ``say`` is told what is imported."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._loaded: dict[str, UserFunction] = {}
        self._files: dict[Path, str] = {}
        self.calls = Calls()
        """What they gave so far."""

    def __len__(self) -> int:
        return len(self._loaded)

    def load(self, text: str) -> UserFunction:
        """The function that `FILE.py:FUNCTION` names, imported as if its file were run from its folder.

        Raises:
            SurgeryError: the file, the name or the import is wrong.
        """
        if text not in self._loaded:
            self._loaded[text] = self._load(text)
        return self._loaded[text]

    def _load(self, text: str) -> UserFunction:
        file = call_spec(text, _EXAMPLE).file.resolve()
        sha256 = self._files.setdefault(file, _digest(file))  # before it is run
        user = load_object(text, say=self._say, example=_EXAMPLE)
        if not callable(user.value):
            raise PlanError(
                f"'{text}' names no function",
                why=f"'{user.spec.name}' is a {type(user.value).__name__}",
                fix=_EXAMPLE,
                field="with",
            )
        _check_call(user.spec, user.value)

        def call(array: Any, path: str) -> Any:
            return user.run(user.value, array, path, *user.spec.args, **user.spec.kwargs)

        name = text.rpartition(".py:")[2]
        hold = partial(self.calls.hold, str(file))
        return UserFunction.of(f"{file.name}:{name}", sha256, call, hold)

    @property
    def files(self) -> Mapping[Path, str]:
        """The SHA-256 of every file that is run."""
        return self._files

    def check_unchanged(self) -> None:
        """The files must be what they were when they were imported.

        Raises:
            CheckpointError: one of them has changed, or is gone.
        """
        for file, sha256 in self._files.items():
            if not file.is_file() or _digest(file) != sha256:
                raise CheckpointError(
                    f"'{file}' changed while its functions ran",
                    why="the record would name another file than the one that was run",
                    fix="run the command again",
                )

    def pinned(self, plan: Plan) -> Plan:
        """The plan with the SHA-256 of every file that it runs: what is recorded means these."""
        edits = tuple(
            msgspec.structs.replace(edit, sha256=self._loaded[edit.with_].sha256)
            if isinstance(edit, Map) and edit.with_ in self._loaded
            else edit
            for edit in plan.edits
        )
        return msgspec.structs.replace(plan, edits=edits)


def _check_call(spec: CallSpec, function: Any) -> None:
    """See that a function takes an array, a path, and what the text gives it.

    Raises:
        PlanError: it does not.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of C functions Python cannot tell
        return
    try:
        signature.bind(None, "", *spec.args, **spec.kwargs)
    except TypeError as error:
        raise PlanError(
            f"'{spec.name}' cannot be called with an array and a path: {error}",
            why=f"it is {spec.name}{signature}",
            fix=f"write it as `def {spec.name}(array, path):`, with arguments of its own behind these",
            field="with",
        ) from None


def _digest(file: Path) -> str:
    import hashlib  # loads OpenSSL

    return f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
