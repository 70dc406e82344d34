"""Linen modules: the variables they need, and a traceable call with every module call tagged."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import jax
from flax import linen as nn
from flax.core.scope import Scope
from flax.linen import transforms

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.calls import (
    Call,
    Collections,
    Expected,
    Path,
    Slot,
    Variables,
    dtype_text,
    unbound,
)
from surgery_cli.probing.model.derived_shapes import marked_derived, with_longer_inputs
from surgery_cli.probing.model.linen_parts import Part, check_alone, find_part, shapes_text
from surgery_cli.probing.model.sites import OpenCalls, replaced, tag, tag_inputs, tagged_sowing

_traces: Final = itertools.count()


class LinenModel:
    """A linen module and one call of it, or of a part of it.

    ``whole`` makes a call of the whole model: a part that is made inside a compact method exists only while that runs.
    """

    kind = "linen"

    def __init__(self, module: nn.Module, call: Call, whole: Callable[[], Call]) -> None:
        self.module = module
        self.call = call
        self._whole = whole
        self._structures: dict[str, Any] = {}
        self._paths: dict[str, list[Path]] = {}
        self._part: Part | None = None
        self._drawn: set[str] = set()
        self._method = _method(module, call.run)

    @property
    def is_taken_apart(self) -> bool:
        """True if what runs was found by a run of the whole model; known once the collections are."""
        return self._part is not None

    def collections(self) -> Collections:
        try:
            tree = self._marked(self._shapes(self.module, self.call, self._method))
        except _NotAnAttribute:
            tree = self._of_whole()
        found: Collections = {}
        for collection, (structure, leaves) in tree.items():
            self._structures[collection] = structure
            self._paths[collection] = list(leaves)
            found[collection] = leaves
        if self._part is not None:
            own = self._shapes(self._part.definition, self.call, self._part.method)
            given = shapes_text(self.call.example())
            check_alone(self.call.run, self._part, _flat(own), _flat(tree), given)
        return found

    def _marked(self, tree: dict[str, Any]) -> dict[str, Any]:
        """The variables, those marked that would have another shape if the inputs were longer.

        Flax holds the shapes of params against what their module asks for; it takes those of other collections as they
        are, and a cache that was made for whole sequences is stepped through with inputs of length 1.
        """
        if tree.keys() <= {"params"}:
            return tree
        try:
            longer = self._shapes(self.module, with_longer_inputs(self.call), self._method)
        except Exception:  # noqa: BLE001 - the model does not run on others
            return tree
        return {
            name: (
                structure,
                leaves if name == "params" else marked_derived(leaves, longer.get(name)),
            )
            for name, (structure, leaves) in tree.items()
        }

    def apply(self, variables: Variables, arrays: Sequence[Any]) -> Any:
        trees = {
            name: jax.tree_util.tree_unflatten(
                structure, [variables[name][path] for path in self._paths[name]]
            )
            for name, structure in self._structures.items()
        }
        module, method = self.module, self._method
        place: Path = ()
        if self._part is not None:
            module, method, place = self._part.definition, self._part.method, self._part.path
            below = {name: _below(tree, place) for name, tree in trees.items()}
            trees = {name: tree for name, tree in below.items() if tree is not None}
        # What a call updates (running averages, caches) must be allowed, and is dropped.
        mutable = [name for name in trees if name != "params"]

        def run(*args: Any, **kwargs: Any) -> Any:
            made = module.apply(
                trees,
                *args,
                **kwargs,
                **self.call.static,
                rngs=self._keys(),
                mutable=mutable or False,
                method=method,
            )
            return made[0] if mutable else made

        with _tagging(place), _noting_streams(self._drawn):
            return self.call.mapped(run, arrays)

    def streams(self, used: Collection[Slot]) -> set[str]:
        return self._drawn

    def _shapes(self, module: nn.Module, call: Call, method: Any) -> dict[str, Any]:
        """For each collection the structure of its tree, and its leaves by path."""
        args, kwargs = call.filled(call.example())

        def init(args: Any, kwargs: Any) -> Any:
            return module.init(self._keys(), *args, **kwargs, **call.static, method=method)

        with _without_sowing():
            variables = nn.meta.unbox(jax.eval_shape(init, args, kwargs))
        found = {}
        for collection, tree in variables.items():
            leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
            found[collection] = (
                structure,
                {
                    tuple(map(_key_text, where)): Expected(
                        tuple(leaf.shape), dtype_text(leaf.dtype)
                    )
                    for where, leaf in leaves
                },
            )
        return found

    def _of_whole(self) -> dict[str, Any]:
        """The shapes of the whole model, and on the way the part that is to be run."""
        shapes: list[dict[str, Any]] = []
        run, whole = self.call.run, self._whole()
        try:
            self._part = find_part(
                run, self.module, lambda: shapes.append(self._shapes(self.module, whole, None))
            )
        except SurgeryError:
            raise
        except Exception as error:
            message = str(error).strip().splitlines() or [""]
            raise SurgeryError(
                f"`--run {run}` is made inside a compact method, and the model does not run on "
                + shapes_text(whole.example()),
                why=f"{type(error).__name__}: {message[0]}",
                fix="say what the whole model takes: `--model-input 'float32[8,28,28,1]'`",
                field="run",
            ) from error
        takes = getattr(type(self._part.definition), self._part.method)
        self.call = self.call.with_static_of(unbound(takes), known=whole.static)
        return shapes[0]

    def _keys(self) -> dict[str, jax.Array]:
        """Keys of the random streams; a stream that is not named takes from ``params``, as Flax has it."""
        named = {name: jax.random.key(seed) for name, seed in self.call.streams.items()}
        return {"params": jax.random.key(self.call.seed), **named}


class _NotAnAttribute(Exception):
    """A part of the model is no attribute of it, or none that can be run."""


def _method(module: nn.Module, name: str) -> Any:
    """What to give as Flax's ``method``: a method by name, or a function that reaches a submodule made in ``setup``."""
    if not name:
        return None
    if callable(getattr(type(module), name, None)):
        return name

    def call_submodule(bound: Any, *args: Any, **kwargs: Any) -> Any:
        target = bound
        for part in name.replace("/", ".").split("."):
            target = _child(target, part)
        if not callable(target):
            raise _NotAnAttribute
        return target(*args, **kwargs)

    return call_submodule


def _child(holder: Any, part: str) -> Any:
    if isinstance(holder, list | tuple) and part.isdecimal() and int(part) < len(holder):
        return holder[int(part)]
    found = getattr(holder, part, None)
    if found is None:
        raise _NotAnAttribute
    return found


def _flat(tree: Mapping[str, Any]) -> dict[Slot, Expected]:
    return {
        (name, path): leaf for name, (_, leaves) in tree.items() for path, leaf in leaves.items()
    }


def _below(tree: Any, path: Path) -> Any:
    """The node at ``path``; None if there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


@contextlib.contextmanager
def _tagging(place: Path) -> Iterator[None]:
    """While the block runs, every call of a method of any module is tagged; ``place`` is the root module's path."""
    calls = OpenCalls()

    def path_of(module: nn.Module) -> str:
        return "/".join((*place, *module.path))

    def intercept(
        next_: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
    ) -> Any:
        module, method = context.module, context.method_name
        if method == "setup":
            return next_(*args, **kwargs)
        call = (path_of(module), method, type(module).__name__)
        # the module itself, not its path: a child that shares its parent's scope stands at the same
        with calls.entering(id(module), method) as is_new:
            if not is_new:
                return next_(*args, **kwargs)
            args, kwargs = tag_inputs(args, kwargs, *call)
            return tag(next_(*args, **kwargs), *call, "out")

    with (
        nn.intercept_methods(intercept),
        tagged_sowing(nn.Module, path_of, does_store=True),
        _own_jit_traces(),
    ):
        yield


def _noting_streams(drawn: set[str]) -> Any:
    """While the block runs, the streams from which modules draw are added to ``drawn``."""

    def noting(original: Any) -> Any:
        def make_rng(self: Scope, name: str = "params") -> Any:
            drawn.add(name if self.has_rng(name) else "params")
            return original(self, name)

        return make_rng

    return replaced(Scope, "make_rng", noting)


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
