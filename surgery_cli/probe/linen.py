"""Linen modules: the variables they need, and a traceable call with every module call tagged."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import jax
from flax import linen as nn
from flax.linen import transforms

from surgery_cli.errors import SurgeryError
from surgery_cli.probe.calls import Call, Collections, Expected, Path, Variables, dtype_text
from surgery_cli.probe.sites import OpenCalls, replaced, tag, tag_inputs, tagged_sowing
from surgery_cli.tree.paths import nearest

_traces: Final = itertools.count()


class LinenModel:
    """A linen module and one call of it."""

    kind = "linen"

    def __init__(self, module: nn.Module, call: Call) -> None:
        self.module = module
        self.call = call
        self._structures: dict[str, Any] = {}
        self._paths: dict[str, list[Path]] = {}
        self._method = _method(module, call.run)

    def collections(self) -> Collections:
        args, kwargs = self.call.filled(self.call.example())

        def init(args: Any, kwargs: Any) -> Any:
            return self.module.init(
                self._keys(), *args, **kwargs, **self.call.static, method=self._method
            )

        with _without_sowing():
            variables = nn.meta.unbox(jax.eval_shape(init, args, kwargs))
        found: Collections = {}
        for collection, tree in variables.items():
            leaves, self._structures[collection] = jax.tree_util.tree_flatten_with_path(tree)
            self._paths[collection] = [tuple(map(_key_text, where)) for where, _ in leaves]
            found[collection] = {
                path: Expected(tuple(leaf.shape), dtype_text(leaf.dtype))
                for path, (_, leaf) in zip(self._paths[collection], leaves, strict=True)
            }
        return found

    def apply(self, variables: Variables, arrays: Sequence[Any]) -> Any:
        trees = {
            name: jax.tree_util.tree_unflatten(
                structure, [variables[name][path] for path in self._paths[name]]
            )
            for name, structure in self._structures.items()
        }
        # What a call updates (running averages, caches) must be allowed, and is dropped.
        mutable = [name for name in trees if name != "params"]

        def run(*args: Any, **kwargs: Any) -> Any:
            made = self.module.apply(
                trees,
                *args,
                **kwargs,
                **self.call.static,
                rngs=self._keys(),
                mutable=mutable or False,
                method=self._method,
            )
            return made[0] if mutable else made

        with _tagging():
            return self.call.mapped(run, arrays)

    def _keys(self) -> dict[str, jax.Array]:
        """Keys of the random streams; a stream that is not named takes from ``params``, as Flax has it."""
        named = {name: jax.random.key(seed) for name, seed in self.call.streams.items()}
        return {"params": jax.random.key(self.call.seed), **named}


def _method(module: nn.Module, name: str) -> Any:
    """What to give as Flax's ``method``: a method by name, or a function that reaches a submodule made in ``setup``."""
    if not name:
        return None
    if callable(getattr(type(module), name, None)):
        return name

    def call_submodule(bound: Any, *args: Any, **kwargs: Any) -> Any:
        target = bound
        for part in name.replace("/", ".").split("."):
            target = _child(target, part, name)
        return target(*args, **kwargs)

    return call_submodule


def _child(holder: Any, part: str, name: str) -> Any:
    if isinstance(holder, list | tuple) and part.isdecimal() and int(part) < len(holder):
        return holder[int(part)]
    try:
        return getattr(holder, part)
    except AttributeError:
        there = [n for n in dir(type(holder)) if not n.startswith("_") and n not in dir(nn.Module)]
        there += [
            n
            for n in vars(holder)
            if not n.startswith("_") and n not in ("parent", "name", "scope")
        ]
        near = nearest(part, there, 1)
        raise SurgeryError(
            f"`--run {name}`: '{type(holder).__name__}' has no method or submodule '{part}'",
            why="it has " + ", ".join(f"'{n}'" for n in dict.fromkeys(there)) if there else "",
            fix=f"did you mean `--run {near[0]}`?"
            if near
            else f"a module made inside a compact method is reached by `--until {part}`",
        ) from None


@contextlib.contextmanager
def _tagging() -> Iterator[None]:
    """While the block runs, every call of a method of any module is tagged."""
    calls = OpenCalls()

    def intercept(
        next_: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
    ) -> Any:
        module, method = context.module, context.method_name
        if method == "setup":
            return next_(*args, **kwargs)
        place = (_path(module), method, type(module).__name__)
        with calls.entering(*place[:2]) as is_new:
            if not is_new:
                return next_(*args, **kwargs)
            args, kwargs = tag_inputs(args, kwargs, *place)
            return tag(next_(*args, **kwargs), *place, "out")

    with (
        nn.intercept_methods(intercept),
        tagged_sowing(nn.Module, _path, does_store=True),
        _own_jit_traces(),
    ):
        yield


def _path(module: nn.Module) -> str:
    return "/".join(module.path)


def _own_jit_traces() -> Any:
    """While the block runs, ``nn.jit`` traces every call anew.

    Its cache is keyed by a fingerprint that leaves out names and interceptors, so that the second of two equal layers
    would carry the tags of the first, or none. The fingerprint is private to Flax; a test holds that this works.
    """

    def unique(original: Callable[..., Any]) -> Callable[..., Any]:
        def fingerprint(module: Any) -> Any:
            kind, content = original(module)
            return kind, (content, ("surgery", next(_traces)))

        return fingerprint

    return replaced(transforms, "_module_fingerprint", unique)


@contextlib.contextmanager
def _without_sowing() -> Iterator[None]:
    """While the block runs, nothing is sown or perturbed: such collections are results, no variables of the model."""
    with (
        replaced(nn.Module, "sow", lambda _: lambda *_args, **_kwargs: False),
        replaced(nn.Module, "perturb", lambda _: lambda _self, _name, value, *_, **__: value),
    ):
        yield


def _key_text(key: Any) -> str:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return str(getattr(key, name))
    return str(key)
