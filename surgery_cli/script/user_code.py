"""The user's own code: objects of a Python file, imported as if the file were run from its folder."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any

from surgery_cli.errors import SurgeryError
from surgery_cli.inputs.call_specs import EXAMPLE, CallSpec, call_spec
from surgery_cli.script.process_state import ProcessState, SearchPath
from surgery_cli.script.user_errors import failure_of_user_code
from surgery_cli.tree.nearness import suggested
from surgery_cli.words.lists import quoted

Say = Callable[[str], None]
"""Takes a line for standard error; importing user code may take long, so it is announced first."""

_numbers = itertools.count(1)


class UserObject:
    """An object of the user's file, and the surroundings in which it must be used.

    ``value`` is what the name stands for, before any call; ``spec`` says whether and how it is to be called.
    """

    def __init__(self, spec: CallSpec) -> None:
        self.spec = spec
        self.file = spec.file.resolve()
        self.folder = _import_root(self.file)
        self.name = f"{spec.file}:{spec.name}"
        self._siblings: dict[str, ModuleType] = {}
        self._path = SearchPath([str(self.folder), str(self.file.parent)])
        self._process = ProcessState()
        self.value: Any = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """While the block runs: its folders first on ``sys.path``, ``sys.argv`` the file, prints on standard error.

        What the block changes of the process, such as the working directory, is its own: see ``ProcessState``.
        Modules that stand beside the file are forgotten afterwards and known again in the next block, so that two
        models whose siblings have the same names do not meet.
        """
        before = (sys.argv[:], sys.dont_write_bytecode)
        hidden = {n: m for n, m in sys.modules.items() if n in self._siblings}
        sys.argv[:] = [str(self.file)]
        sys.dont_write_bytecode = True
        sys.modules.update(self._siblings)
        try:
            with self._path.standing(), self._process.standing():
                yield
        finally:
            sys.argv[:], sys.dont_write_bytecode = before
            found = {n: m for n, m in sys.modules.items() if self._is_sibling(n, m)}
            self._siblings.clear()
            self._siblings.update(found)
            for name in self._siblings:
                del sys.modules[name]
            sys.modules.update(hidden)

    def _is_sibling(self, name: str, module: ModuleType) -> bool:
        """True for modules that this object's file brought along from its own folder."""
        if name in self._present_before or name == "__main__":
            return False
        place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), "")
        if not isinstance(place, str) or not place:
            return False
        path = Path(place)
        if name.startswith(("surgery_cli", "surgery_user_")) or "site-packages" in path.parts:
            return False
        return path.is_relative_to(self.folder) or self._path.holds(path)

    def load(self) -> None:
        """Import the file and look the name up.

        Raises:
            SurgeryError: the import fails, or the file has no such name.
        """
        self._present_before = frozenset(sys.modules)
        with self.running():
            try:
                self._module = self._imported()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever user code raises
                what = f"importing '{self.file}'"
                raise failure_of_user_code(error, self.folder, what, is_import=True) from None
        self.value = _looked_up(self.spec, self._module)

    def beside(self, spec: CallSpec) -> UserObject:
        """Another object of the same file, which is not imported again."""
        other = copy.copy(self)  # the modules that the file brought along are shared
        other.spec, other.name = spec, f"{spec.file}:{spec.name}"
        other.value = _looked_up(spec, self._module)
        return other

    def _imported(self) -> ModuleType:
        importlib.invalidate_caches()
        if self.folder != self.file.parent:  # inside a package: its relative imports must work
            parts = self.file.relative_to(self.folder).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            return importlib.import_module(name)
        name = f"surgery_user_{next(_numbers)}_{self.file.stem}"
        spec = importlib.util.spec_from_file_location(name, self.file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses look their module up while it runs
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module

    def call(self, **more: Any) -> Any:
        """Call the object with the spec's arguments and those of ``more`` that the spec does not give.

        Raises:
            SurgeryError: arguments are missing or unknown, or the call fails.
        """
        kwargs = {**more, **self.spec.kwargs}
        _check_arguments(self.spec, self.value, self.spec.args, kwargs)
        return self.run(self.value, *self.spec.args, **kwargs)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of the user's in its surroundings; what it raises becomes a SurgeryError."""
        with self.running():
            try:
                return function(*args, **kwargs)
            except SurgeryError:
                raise
            except (Exception, SystemExit) as error:
                raise failure_of_user_code(error, self.folder, f"'{self.spec.name}'") from error


def load_object(text: str, *, say: Say = lambda _: None, example: str = EXAMPLE) -> UserObject:
    """Import what ``FILE.py:NAME`` or ``FILE.py:NAME(ARGUMENTS)`` names; nothing is called yet.

    ``example`` is the advice where the text is not of that form.

    Raises:
        SurgeryError: the file, the name or the import is wrong.
    """
    found = UserObject(call_spec(text, example))
    known = _imported_files.get()
    if known is not None and found.file in known:
        return known[found.file].beside(found.spec)
    say(f"importing {found.spec.file}")
    found.load()
    if known is not None:
        known[found.file] = found
    return found


_imported_files: ContextVar[dict[Path, UserObject] | None] = ContextVar(
    "user's files", default=None
)


@contextlib.contextmanager
def importing_once() -> Iterator[None]:
    """While the block runs, a file of the user's that is named twice (`--probe`, `--loss`) is imported once."""
    token = _imported_files.set({})
    try:
        yield
    finally:
        _imported_files.reset(token)


def _looked_up(spec: CallSpec, module: ModuleType) -> Any:
    value: Any = module
    for part in spec.name.split("."):
        if not hasattr(value, part):
            raise _no_such_name(spec, value, part)
        value = getattr(value, part)
    return value


def parameters_of(callable_: Any) -> Mapping[str, inspect.Parameter]:
    """The parameters of a function or class, without ``self``; empty if Python cannot tell."""
    # Metaclasses such as NNX's have a `__call__(*args, **kwargs)` that says nothing of the class
    is_class = inspect.isclass(callable_)
    try:
        found = inspect.signature(callable_.__init__ if is_class else callable_).parameters
    except (TypeError, ValueError):
        return {}
    return dict(itertools.islice(found.items(), int(is_class), None))


def _import_root(file: Path) -> Path:
    """The folder that must stand on ``sys.path``: above the outermost package that holds the file."""
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def _no_such_name(spec: CallSpec, holder: Any, part: str) -> SurgeryError:
    home = getattr(holder, "__name__", None) if isinstance(holder, ModuleType) else None
    there = [
        name
        for name, value in vars(holder).items()
        if not name.startswith("_")
        and not isinstance(value, ModuleType)
        and (home is None or getattr(value, "__module__", home) == home)
    ]
    return SurgeryError(
        f"'{spec.file}' has no '{part}'",
        why="it has " + quoted(there, 12) if there else "it is empty",
        fix=suggested(part, there, f"`{spec.file}:{{}}`"),
    )


def _check_arguments(
    spec: CallSpec, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse arguments that the object does not take, or that it needs and has not got."""
    parameters = parameters_of(value)
    kinds = inspect.Parameter
    named = {
        n: p
        for n, p in parameters.items()
        if p.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)
    }
    takes_any = any(p.kind is kinds.VAR_KEYWORD for p in parameters.values())
    unknown = [] if takes_any or not parameters else [n for n in kwargs if n not in named]
    ordered = [n for n, p in named.items() if p.kind is kinds.POSITIONAL_OR_KEYWORD]
    given = {*ordered[: len(args)], *kwargs}
    missing = [n for n, p in named.items() if p.default is kinds.empty and n not in given]
    takes_more = any(p.kind is kinds.VAR_POSITIONAL for p in parameters.values())
    surplus = [] if takes_more or not parameters else list(args[len(ordered) :])
    if not unknown and not missing and not surplus:
        return
    takes = ", ".join(
        n if p.default is kinds.empty else f"{n}={p.default!r}"
        for n, p in named.items()
        if n not in ("parent", "name", "rngs")  # Flax's own
    )
    wrong = [f"does not take '{n}'" for n in unknown] + [f"needs '{n}'" for n in missing]
    wrong += [f"has no argument for {value!r}" for value in surplus]
    example = ", ".join(f"{n}=…" for n in missing)
    raise SurgeryError(
        f"'{spec.name}' {', '.join(wrong)}",
        why=f"it takes {takes or 'no arguments'}",
        fix=f"say it: `{spec.file}:{spec.name}({example})`" if missing else "",
    )
