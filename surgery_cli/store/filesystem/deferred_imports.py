"""Modules that a library imports for what is not asked of it here: they are loaded once something is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any


@contextmanager
def deferred(*modules: str) -> Iterator[None]:
    """Inside, ``from MODULE import NAME`` of one of these modules gives a stand-in, which loads it when it is used.

    Those that are loaded stay what they are, and so do those of which a library makes more at once than to keep their
    names (a class of its own, say).
    """
    stand_ins = {name: _Deferred(name) for name in modules if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name, stand_in in stand_ins.items():
            if sys.modules.get(name) is stand_in:
                del sys.modules[name]


class _Deferred(ModuleType):
    def __getattr__(self, name: str) -> _Named:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(self.__name__, name)


class _Named:
    """What a module has under a name."""

    def __init__(self, module: str, name: str) -> None:
        self._place = module, name

    @cached_property
    def _itself(self) -> Any:
        module, name = self._place
        if isinstance(sys.modules.get(module), _Deferred):
            del sys.modules[module]
        return getattr(import_module(module), name)

    def __call__(self, *given: Any, **more: Any) -> Any:
        return self._itself(*given, **more)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._itself)

    def __mro_entries__(self, _: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._itself,)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._itself, name)
