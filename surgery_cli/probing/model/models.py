"""Models as users name them: a linen module or its class, an NNX class, or a function that makes either."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import msgspec
from flax import linen as nn
from flax import nnx
from jax.extend.core import ClosedJaxpr

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.calls import (
    Call,
    Collections,
    Model,
    Slot,
    Variables,
    make_call,
    unbound,
)
from surgery_cli.probing.model.inputs import Input
from surgery_cli.probing.model.linen import LinenModel
from surgery_cli.probing.model.nnx_model import NnxModel
from surgery_cli.script.user_code import UserObject, parameters_of
from surgery_cli.tree.nearness import suggested


class Trace(msgspec.Struct, frozen=True, eq=False):
    """A call of a model as a computation over a flat list: the variables in order, then the inputs.

    ``slots`` names the variables. ``structure`` is the tree of the outputs. Traces are equal only if they are the same
    one, so that what is compiled of it can be kept with it.
    """

    closed: ClosedJaxpr
    slots: list[Slot]
    structure: Any
    folder: Any
    """The folder of the user's code, in which lines of source are looked for."""


def make_model(
    user: UserObject,
    inputs: Sequence[Input],
    *,
    static: Mapping[str, Any],
    run: str = "",
    model_inputs: Sequence[Input] = (),
    methods: Sequence[str] = (),
    vmap_axis: str = "",
    seed: int = 0,
    streams: Mapping[str, int] | None = None,
) -> Model:
    """The model that the user's object stands for, with one call of it.

    ``model_inputs`` are those of the whole model, where ``run`` names a part of it that takes others.

    Raises:
        SurgeryError: the object is no model, or cannot be made or called so.
    """
    settings: dict[str, Any] = {
        "static": dict(static), "run": run, "methods": tuple(methods),
        "vmap_axis": vmap_axis, "seed": seed, "streams": streams or {},
    }  # fmt: skip
    _refuse_other_library(user, user.value)
    factory = _nnx_factory(user, seed, streams or {})
    if factory is not None:
        kind = user.value if inspect.isclass(user.value) else type(_abstract(factory))
        function = getattr(kind, run or "__call__", None)
        is_training = None
        if not run and function is not None and "train" not in parameters_of(function):
            # Dropout and BatchNorm have their mode in the module: `train` is no argument of the call
            is_training = settings["static"].pop("train", None)
        call = make_call(inputs, unbound(function), **settings)
        made: NnxModel = user.run(NnxModel, factory, call, is_training)
        return made
    module = _linen_module(user)
    if not isinstance(module, nn.Module):
        _refuse_other_library(user, module)
        raise _no_model(user, module)
    function = getattr(type(module), run or "__call__", None)

    def whole() -> Call:
        takes = unbound(type(module).__call__)
        known = {n: v for n, v in static.items() if n in parameters_of(takes)}
        call = make_call(model_inputs or inputs, takes, **{**settings, "run": "", "static": known})
        if model_inputs and call.for_loss:
            raise _not_taken(next(iter(call.for_loss)), call)
        return call

    return LinenModel(module, make_call(inputs, unbound(function), **settings), whole)


def trace(model: Model, user: UserObject, variables: Collections, call: Call) -> Trace:
    """Trace the call from shapes alone.

    Raises:
        SurgeryError: the model's own code fails.
    """
    slots = [(name, path) for name, paths in variables.items() for path in paths]
    specs = [
        _spec(variables[name][path].shape, variables[name][path].dtype) for name, path in slots
    ]
    arrays = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in call.arrays]

    def run(leaves: list[Any], inputs: list[Any]) -> Any:
        trees: Variables = {name: {} for name in variables}
        for (name, path), leaf in zip(slots, leaves, strict=True):
            trees[name][path] = leaf
        return model.apply(trees, inputs)

    closed, shapes = user.run(jax.make_jaxpr(run, return_shape=True), specs, arrays)
    return Trace(closed, slots, jax.tree_util.tree_structure(shapes), user.folder)


def _spec(shape: tuple[int, ...], dtype: str) -> jax.ShapeDtypeStruct:
    if dtype.startswith("key<"):
        key = jax.eval_shape(lambda: jax.random.key(0, impl=dtype[4:-1]))
        return jax.ShapeDtypeStruct(shape, key.dtype)
    return jax.ShapeDtypeStruct(shape, dtype)


def _nnx_factory(user: UserObject, seed: int, streams: Mapping[str, int]) -> Any:
    """A function without arguments that makes the NNX module; None if the object makes none."""
    value = user.value
    if isinstance(value, nnx.Module):
        return lambda: nnx.clone(value)
    is_class = inspect.isclass(value) and issubclass(value, nnx.Module)
    if not is_class and (
        inspect.isclass(value) or isinstance(value, nn.Module) or not callable(value)
    ):
        return None

    def factory() -> Any:
        more = {"rngs": nnx.Rngs(seed, **streams)} if "rngs" in parameters_of(value) else {}
        return user.call(**more)

    return factory if is_class or isinstance(_abstract(factory), nnx.Module) else None


def _abstract(factory: Any) -> Any:
    """What the factory makes, from shapes alone; only its type may be looked at."""
    made: list[Any] = []

    def run() -> int:
        made.append(factory())
        return 0

    jax.eval_shape(run)
    return made[0]


def _linen_module(user: UserObject) -> Any:
    value = user.value
    if isinstance(value, nn.Module) or not callable(value):
        return value
    return user.call()


def _not_taken(name: str, call: Call) -> SurgeryError:
    return SurgeryError(
        f"the model takes no input '{name}'",
        why="it takes " + ", ".join(f"'{n}'" for n in call.takes),
        fix=suggested(name, call.takes, "`--model-input {}=…`"),
        field="model_input",
    )


_OTHER_LIBRARIES: Final = {
    "equinox": "Equinox",
    "haiku": "Haiku",
    "keras": "Keras",
    "objax": "Objax",
    "penzai": "Penzai",
    "torch": "PyTorch",
    "trax": "Trax",
}


def _refuse_other_library(user: UserObject, value: Any) -> None:
    """Refuse what another library's class makes, by that library's name.

    Raises:
        SurgeryError: the class of the object, or one that it inherits from, is another library's.
    """
    kinds = value.__mro__ if inspect.isclass(value) else type(value).__mro__
    roots = {str(kind.__module__).partition(".")[0] for kind in kinds}
    library = next((name for root, name in _OTHER_LIBRARIES.items() if root in roots), None)
    if library is not None:
        raise SurgeryError(
            f"'{user.spec.name}' is a model of {library}, and the probe runs those of Flax",
            why="it looks into the calls of linen and NNX modules",
            fix="edits, `diff` and `verify` need no model; they take any checkpoint of Orbax",
        )


def _no_model(user: UserObject, found: Any) -> SurgeryError:
    module = type(found).__name__
    there = [
        name
        for name, value in vars(_module_of(user)).items()
        if inspect.isclass(value)
        and issubclass(value, nn.Module | nnx.Module)
        and not name.startswith("_")
    ]
    return SurgeryError(
        f"'{user.spec.name}' is no model, but of type '{module}'",
        why="a model is a linen or NNX module, its class, or a function that makes one",
        fix="the file has " + ", ".join(f"'{n}'" for n in there) if there else "",
    )


def _module_of(user: UserObject) -> Any:
    import sys

    return sys.modules.get(getattr(user.value, "__module__", ""), user)
