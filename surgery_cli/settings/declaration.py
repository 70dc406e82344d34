"""How a setting is declared: as a field of a struct, with what its option, its key in plans and the docs say of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

_KEY: Final = "setting"


class Group(Enum):
    """What options are shown under in a command's help, in this order."""

    EDIT = "What to edit"
    RUN = "What to run"
    REMOVE = "What to remove"
    SHOW = "What to show"
    COMPARE = "What to compare"
    LAYOUT = "How it is laid out"
    CHECKPOINT = "Which checkpoint"
    OPTIMIZER = "Optimizer state"
    WRITE = "Writing"
    HOSTS = "Many hosts"
    MEMORY = "Memory"
    CHECK = "Checking"
    CALL = "How your model is called"
    OUTPUT = "Output"


class Setting(NamedTuple):
    """How a setting is typed.

    ``parser`` reads one text and may refuse it as a usage error. ``option`` are its names, by default the field's own;
    ``read`` makes the value of everything that was given. ``default`` is the text that stands for the field's default,
    ``least`` the smallest number that the option takes. Without the setting ``needs`` it would say nothing. Where a run
    goes on many hosts, each may be told otherwise only ``of_host``. Not ``on_record`` is what says how a run goes, and
    nothing of what it makes, or proves.
    """

    group: Group
    metavar: str = ""
    parser: Callable[[str], Any] | None = None
    option: str = ""
    read: Callable[[Any], Any] | None = None
    default: str | None = None
    least: int | None = None
    needs: str = ""
    of_host: bool = False
    on_record: bool = True


def setting(description: str, group: Group, *form: Any, **typed: Any) -> Meta:
    """The mark of a field that is a setting; ``form`` and ``typed`` are the other fields of ``Setting``, in order."""
    return Meta(description=description, extra={_KEY: Setting(group, *form, **typed)})


@cache
def settings_of(kind: type[msgspec.Struct]) -> Mapping[str, Setting]:
    """The settings among the fields of a struct, by the fields' names."""
    found = {}
    for name, annotation in get_type_hints(kind, include_extras=True).items():
        for mark in get_args(annotation):
            extra = (isinstance(mark, Meta) and mark.extra) or {}
            if _KEY in extra:
                declared: Setting = extra[_KEY]
                option = declared.option or "--" + name.replace("_", "-")
                found[name] = declared._replace(option=option)
    return found


def given(settings: msgspec.Struct) -> Mapping[str, Setting]:
    """The settings that say something else than they do by default."""
    defaults = type(settings)()
    return {
        name: declared
        for name, declared in settings_of(type(settings)).items()
        if getattr(settings, name) != getattr(defaults, name)
    }


def for_record(settings: msgspec.Struct, but: Collection[str] = ()) -> dict[str, str]:
    """What a run was told beyond the defaults that it is known by later, by option; ``but`` for these fields."""
    return {
        declared.option: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for name, declared in given(settings).items()
        if declared.on_record and not declared.of_host and name not in but
        for value in [getattr(settings, name)]
    }
