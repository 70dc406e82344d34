"""NNX modules: the variables they hold, and a traceable call with every module call tagged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import jax
from flax import nnx

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.calls import Call, Collections, Expected, Slot, Variables, dtype_text
from surgery_cli.probing.model.sites import OpenCalls, replaced, tag, tag_inputs, tagged_sowing
from surgery_cli.tree.nearness import suggested

_PATH: Final = "_surgery_path"
"""A static attribute, so that it stays with a module through every transformation, and is part of every cache's key."""


class NnxModel:
    """An NNX module, made by ``factory`` from shapes alone, and one call of it."""

    kind = "nnx"
    is_taken_apart = False

    def __init__(
        self, factory: Callable[[], nnx.Module], call: Call, is_training: bool | None = None
    ) -> None:
        self._factory = factory
        self.call = call
        module = nnx.eval_shape(factory)
        if is_training is not None:
            (module.train if is_training else module.eval)()
        self._classes: set[tuple[type, str]] = set()
        for path, inner in nnx.iter_modules(module):
            setattr(inner, _PATH, "/".join(map(str, path)))
            for name in _methods(type(inner), {"__call__", call.run, *call.methods}):
                owner = _owner(type(inner), name)
                if owner is not None:
                    self._classes.add((owner, name))
        self._structure, state = nnx.split(module)
        self._state = dict(nnx.to_flat_state(state))

    def collections(self) -> Collections:
        found: Collections = {}
        for path, variable in self._state.items():
            value = variable.get_value()
            spec = Expected(
                tuple(value.shape), dtype_text(value.dtype), isinstance(variable, nnx.RngState)
            )
            found.setdefault(type(variable).__name__, {})[tuple(map(str, path))] = spec
        return found

    def made_by_factory(self, missing: Variables) -> Variables:
        """Values of the random streams that ``missing`` names, as the factory makes them; nothing else is computed."""

        def make() -> Any:
            state = dict(nnx.to_flat_state(nnx.state(self._factory())))
            return {p: v.get_value() for p, v in state.items() if isinstance(v, nnx.RngState)}

        values = {tuple(map(str, p)): v for p, v in jax.jit(make)().items()}
        return {name: {path: values[path] for path in paths} for name, paths in missing.items()}

    def apply(self, variables: Variables, arrays: Sequence[Any]) -> Any:
        by_path = {path: value for paths in variables.values() for path, value in paths.items()}
        state = nnx.from_flat_state(
            {p: v.replace(by_path[tuple(map(str, p))]) for p, v in self._state.items()}
        )
        structure = self._structure

        def run(*args: Any, **kwargs: Any) -> Any:
            module = nnx.merge(structure, state)
            return _target(module, self.call.run)(*args, **kwargs, **self.call.static)

        with _tagging(self._classes):
            return self.call.mapped(run, arrays)

    def streams(self, used: Collection[Slot]) -> set[str]:
        return {
            variable.tag
            for path, variable in self._state.items()
            if isinstance(variable, nnx.RngState)
            and (type(variable).__name__, tuple(map(str, path))) in used
        }


def _methods(kind: type, wanted: set[str]) -> set[str]:
    """The methods to be tagged; ``*`` adds every public one that a class of the user's defines."""
    if "*" not in wanted:
        return wanted
    own = [c for c in kind.__mro__ if not c.__module__.startswith(("flax.", "builtins"))]
    public = {n for c in own for n, v in vars(c).items() if callable(v) and not n.startswith("_")}
    return wanted | public


def _owner(kind: type, method: str) -> type | None:
    """The class that defines the method: wrapping it there reaches those that inherit it."""
    return next((c for c in kind.__mro__ if method in vars(c) and issubclass(c, nnx.Module)), None)


def _target(module: Any, name: str) -> Any:
    """The module itself, or the method or submodule that ``name`` (with dots or slashes) names."""
    for part in filter(None, name.replace("/", ".").split(".")):
        try:
            module = module[int(part)] if part.isdecimal() else getattr(module, part)
        except (AttributeError, IndexError, TypeError):
            there = [n for n in vars(module) if not n.startswith("_")]
            there += [n for n in vars(type(module)) if not n.startswith("_")]
            raise SurgeryError(
                f"`--run {name}`: '{type(module).__name__}' has no method or submodule '{part}'",
                why="it has " + ", ".join(f"'{n}'" for n in there) if there else "",
                fix=suggested(part, there, "`--run {}`"),
            ) from None
    return module


@contextlib.contextmanager
def _tagging(classes: set[tuple[type, str]]) -> Iterator[None]:
    """While the block runs, every call of the ``(class, method)`` pairs is tagged."""
    calls = OpenCalls()

    def wrapper(method: str) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            def call(self: Any, *args: Any, **kwargs: Any) -> Any:
                place = (_path(self), method, type(self).__name__)
                with calls.entering(id(self), method) as is_new:
                    if not is_new:
                        return original(self, *args, **kwargs)
                    args, kwargs = tag_inputs(args, kwargs, *place)
                    return tag(original(self, *args, **kwargs), *place, "out")

            return call

        return wrap

    with contextlib.ExitStack() as stack:
        for owner, method in sorted(classes, key=lambda c: (c[0].__qualname__, c[1])):
            stack.enter_context(replaced(owner, method, wrapper(method)))
        stack.enter_context(tagged_sowing(nnx.Module, _path, does_store=False))
        yield


def _path(module: nnx.Module) -> str:
    # A module that the call itself makes has no place in the model
    return getattr(module, _PATH, f"<{type(module).__name__}>")
