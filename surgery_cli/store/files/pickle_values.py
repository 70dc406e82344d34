"""What a pickle says, read without running any of it.

An interpreter of the opcodes that plain data are made of. A name (``os.system``) is text here: nothing is imported, and
what is called with arguments is looked up in a table of records that the caller knows; all else is a ``Stranger``,
which is never opened. Source: ``pickletools`` of Python, which documents the opcodes and cuts them apart.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from pickletools import genops
from typing import Any, Final, NoReturn

import msgspec

from surgery_cli.words.lists import quoted

Record = Callable[..., Any]
"""Makes a value of the arguments that stand in the pickle; raises ``NotPlain`` where they are not what it takes."""

_LITERALS: Final = (
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINSTRING", "BINSTRING"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
)
"""Opcodes that are followed by a value."""
_MOST_STRANGERS: Final = 64


class NotPlain(ValueError):
    """The pickle is damaged, or says what is no plain data."""


class NotRead(NotPlain):
    """The pickle is whole, and says something that no leaf can be."""


class Name(msgspec.Struct, frozen=True):
    """The name of something, as ``collections.OrderedDict``; never the thing."""

    text: str

    @property
    def last(self) -> str:
        return self.text.rpartition(".")[2]


class Stranger(msgspec.Struct, frozen=True):
    """A name that is not known, or what the pickle would have made with it."""

    name: str


class Stateful:
    """What a record has made that gets its content afterwards."""

    def set_state(self, state: Any) -> None:
        """Take the content.

        Raises:
            NotPlain: it is none.
        """
        raise NotImplementedError


class PickleValue:
    """Interprets the opcodes of one pickle.

    ``records`` are the names that may stand in it, with what is made where they are called; None for names that only
    stand there. ``reference`` makes a value of a persistent id. ``strangers`` are the other names that were met, each
    once: whoever takes the value looks there first.
    """

    def __init__(
        self, content: bytes, records: Mapping[str, Record | None], reference: Record
    ) -> None:
        self.strangers: list[str] = []
        self.opcodes = 0
        self._content = content
        self._records = records
        self._reference = reference
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        """The value of the whole pickle.

        Raises:
            NotPlain: it is damaged, is made of opcodes that data do not need, or a record does not take what it is
                given; not for strangers.
        """
        at = 0
        handlers = self._handlers()
        for name, argument, at in self._parts():
            self.opcodes += 1
            if name == "STOP":
                return self._pop()
            handler = handlers.get(name)
            if handler is None:
                self._refuse_opcode(name, argument, at)
            handler(argument)
        raise NotPlain(f"its pickle ends at {at} without an end")

    def _parts(self) -> Iterator[tuple[str, Any, int]]:
        try:
            for opcode, argument, at in genops(io.BytesIO(self._content)):
                yield opcode.name, argument, at or 0
        except (ValueError, EOFError, IndexError, OverflowError, struct.error, Warning) as error:
            # what Python warns of, where that is an error, are escapes in text of opcodes that no plain data need
            raise NotPlain(f"its pickle does not read: {str(error)[:200]}") from None

    def _refuse_opcode(self, name: str, argument: Any, at: int) -> NoReturn:
        """What is not among the handlers makes objects in ways that no plain data need."""
        if name == "INST":
            self._meet(str(argument).replace(" ", "."))
        raise NotPlain(f"its pickle has the opcode {name} at {at}, which no plain data need")

    # The stack.

    def _pop(self) -> Any:
        if not self._stack or (self._marks and len(self._stack) <= self._marks[-1]):
            raise NotPlain("its pickle takes more from its stack than it puts there")
        return self._stack.pop()

    def _since_mark(self) -> list[Any]:
        if not self._marks:
            raise NotPlain("its pickle closes more than it opens")
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def _last(self, count: int) -> tuple[Any, ...]:
        return tuple(self._pop() for _ in range(count))[::-1]

    def _drop(self) -> None:
        self._pop()

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    # The memo.

    def _keep(self, index: int | None) -> None:
        value = self._pop()
        self._push(value)
        self._memo[len(self._memo) if index is None else index] = value

    def _recall(self, index: int) -> None:
        if index not in self._memo:
            raise NotPlain("its pickle refers to what does not stand in it")
        self._push(self._memo[index])

    # Containers.

    def _append(self, parts: Sequence[Any]) -> None:
        target = self._pop()
        self._push(target)
        if isinstance(target, list):
            target.extend(parts)
        elif not isinstance(target, Stranger):
            raise NotPlain("its pickle appends to what is no list")

    def _set(self, parts: Sequence[Any]) -> None:
        target = self._pop()
        self._push(target)
        if isinstance(target, Stranger):
            return
        if not isinstance(target, dict) or len(parts) % 2:
            raise NotPlain("its pickle sets items of what is no dict")
        target.update(pairs(parts[::2], parts[1::2]))

    # Names, and what is made with them.

    def _meet(self, name: str) -> None:
        if name not in self.strangers and len(self.strangers) < _MOST_STRANGERS:
            self.strangers.append(name)

    def _name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise NotPlain("its pickle has a name that is no text")
        text = f"{_RENAMED.get(module, module)}.{name}"
        if text in self._records:
            self._push(Name(text))
        else:
            self._meet(text)
            self._push(Stranger(text))

    def _call(self, called: Any, arguments: Any) -> None:
        if isinstance(called, Stranger):
            self._push(called)
            return
        record = self._records[called.text] if isinstance(called, Name) else None
        if record is None or not isinstance(arguments, tuple):
            raise NotPlain("its pickle calls what is no record")
        try:
            self._push(record(*arguments))
        except TypeError:
            raise NotPlain(f"its pickle gives `{called.text}` what it does not take") from None

    def _build(self, state: Any) -> None:
        """Set what stands beside a value: at ``state_dict``'s, versions of the modules, which are no leaves."""
        target = self._pop()
        self._push(target)
        if isinstance(target, Stranger):
            return
        if isinstance(target, Stateful):
            target.set_state(state)
            return
        if not isinstance(target, dict) or not isinstance(state, dict):
            raise NotPlain("its pickle sets the state of what is no dict")
        if others := [name for name in state if name != "_metadata"]:
            raise NotRead(f"a dict in it has attributes: {quoted(others, 3)}")

    def _handlers(self) -> dict[str, Callable[[Any], None]]:
        """What each opcode does; all others make objects, run code, or belong to protocols that nobody writes."""
        return {
            **dict.fromkeys(("PROTO", "FRAME"), lambda _: None),
            **dict.fromkeys(_LITERALS, self._push),
            "BYTEARRAY8": lambda argument: self._push(bytes(argument)),
            "NONE": lambda _: self._push(None),
            "NEWTRUE": lambda _: self._push(True),
            "NEWFALSE": lambda _: self._push(False),
            "EMPTY_TUPLE": lambda _: self._push(()),
            "EMPTY_LIST": lambda _: self._push([]),
            "EMPTY_DICT": lambda _: self._push({}),
            "MARK": lambda _: self._marks.append(len(self._stack)),
            "POP": lambda _: self._drop(),
            "POP_MARK": lambda _: self._since_mark().clear(),
            **dict.fromkeys(("BINPUT", "LONG_BINPUT", "MEMOIZE"), self._keep),
            **dict.fromkeys(("BINGET", "LONG_BINGET"), self._recall),
            "TUPLE": lambda _: self._push(tuple(self._since_mark())),
            "TUPLE1": lambda _: self._push(self._last(1)),
            "TUPLE2": lambda _: self._push(self._last(2)),
            "TUPLE3": lambda _: self._push(self._last(3)),
            "APPEND": lambda _: self._append(self._last(1)),
            "APPENDS": lambda _: self._append(self._since_mark()),
            "SETITEM": lambda _: self._set(self._last(2)),
            "SETITEMS": lambda _: self._set(self._since_mark()),
            "GLOBAL": lambda argument: self._name(*argument.split(" ", 1)),
            "STACK_GLOBAL": lambda _: self._name(*self._last(2)),
            **dict.fromkeys(("REDUCE", "NEWOBJ"), lambda _: self._call(*self._last(2))),
            "BUILD": lambda _: self._build(self._pop()),
            "BINPERSID": lambda _: self._push(self._reference(self._pop())),
        }


def pairs(keys: Sequence[Any], values: Sequence[Any]) -> dict[str | int, Any]:
    """A dict of them.

    Raises:
        NotPlain: a key is neither text nor a number: no path leads through it.
    """
    for key in keys:
        if not isinstance(key, str | int):
            raise NotRead(
                f"a dict in it has a key of the kind '{kind_of(key)}', not text or a number"
            )
    return dict(zip(keys, values, strict=True))


def kind_of(value: Any) -> str:
    """What a value is, in a word; its content may be endless."""
    return value.name if isinstance(value, Stranger) else type(value).__name__


_RENAMED: Final = {"__builtin__": "builtins"}
"""Modules of Python 2 whose names pickles of protocol 2 use."""
