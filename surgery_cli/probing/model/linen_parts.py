"""Parts of a linen model that exist only while it runs: found in an abstract run, to be called on their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import msgspec
from flax import linen as nn
from flax.core import lift

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.calls import Expected, Path, Slot
from surgery_cli.probing.model.sites import replaced
from surgery_cli.tree.nearness import suggested
from surgery_cli.words.lists import quoted
from surgery_cli.words.quantities import array_text


class Part(msgspec.Struct, frozen=True):
    """A module of a model without its surroundings: its path there, its definition, and the method to be called.

    ``received`` says which arrays the model itself hands to it.
    """

    path: Path
    definition: nn.Module
    method: str
    received: str


def find_part(name: str, model: nn.Module, run: Callable[[], Any]) -> Part:
    """The module (or method of one) that ``name`` means, from ``run``, which runs ``model`` on shapes.

    Raises:
        SurgeryError: the run calls no such module, or the module cannot be had without its surroundings.
    """
    keys = tuple(name.replace("/", ".").split("."))
    called: dict[Path, str] = {}
    found: list[Part] = []
    with _seeing_mapped_variables() as is_mapped:

        def intercept(
            next_: Callable[..., Any], args: Any, kwargs: Any, context: nn.module.InterceptorContext
        ) -> Any:
            module, method = context.module, context.method_name
            path = tuple(module.path)
            if method != "setup" and path:
                called.setdefault(path, type(module).__name__)
                if not found and _means(keys, path, module):
                    if is_mapped():
                        raise _mapped(name)
                    wanted = keys[-1] if len(keys) > len(path) else "__call__"
                    found.append(
                        Part(path, _alone(name, module), wanted, shapes_text((args, kwargs)))
                    )
            return next_(*args, **kwargs)

        with nn.intercept_methods(intercept):
            run()
    if found:
        return found[0]
    methods = [
        n
        for n in dir(type(model))
        if not n.startswith("_")
        and n not in (*dir(nn.Module), "name", "parent", "scope")  # the last are Flax's own fields
        and callable(getattr(type(model), n))
    ]
    names = [*methods, *("/".join(path) for path in called)]
    raise SurgeryError(
        f"`--run {name}`: '{type(model).__name__}' has no method or submodule '{name}'",
        why="it has " + quoted(names, 12) if names else "",
        fix=suggested("/".join(keys), names, "`--run {}`"),
        field="run",
    )


def check_alone(
    name: str,
    part: Part,
    own: Mapping[Slot, Expected],
    there: Mapping[Slot, Expected],
    inputs: str,
) -> None:
    """The variables that the part asks for on its own must be those that it has in the model.

    Raises:
        SurgeryError: it asks for others: its inputs have another shape, or what stands around it shapes them.
    """
    for (collection, path), wanted in own.items():
        has = there.get((collection, (*part.path, *path)))
        if has == wanted:
            continue
        at = "/".join((*part.path, *path))
        if has is not None and len(has.shape) == len(wanted.shape):
            why = f"in the model it gets {part.received}; here it gets {inputs}"
            fix = "give it inputs of the size that it has in the model"
        else:
            why = "in the model it has variables of another module, or one set per iteration or member"
            fix = f"look at it inside the model: `--at {'/'.join(part.path)}` without `--run`"
        raise SurgeryError(
            f"`--run {name}`: on its own it wants '{at}' {wanted.text}, "
            + (f"the model has {has.text} there" if has is not None else "the model has none"),
            why=why,
            fix=fix,
            field="run",
        )


def _means(keys: Path, path: Path, module: nn.Module) -> bool:
    return keys == path or (keys[:-1] == path and callable(getattr(type(module), keys[-1], None)))


def _alone(name: str, module: nn.Module) -> nn.Module:
    definition, _ = module.unbind()
    fields = [getattr(definition, field) for field in type(definition).__dataclass_fields__]
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree_util.tree_leaves(fields)):
        raise SurgeryError(
            f"`--run {name}`: the module is made from values that the model computes",
            why="without the model's run there is nothing to make it from",
            fix=f"look at it inside the model: `--at {'/'.join(module.path)}` without `--run`",
            field="run",
        )
    return definition


def _mapped(name: str) -> SurgeryError:
    return SurgeryError(
        f"`--run {name}`: the model changes this module's variables on their way to it",
        why="it stands inside `nn.map_variables` (or `nn.WeightNorm`, which uses it)",
        fix="run the module around it, or look at it inside the model by `--at`",
        field="run",
    )


@contextlib.contextmanager
def _seeing_mapped_variables() -> Iterator[Callable[[], bool]]:
    """While the block runs, the function that it yields tells whether `map_variables` stands around the caller."""
    depth = [0]

    def wrap(original: Any) -> Any:
        def map_variables(fn: Any, *args: Any, **kwargs: Any) -> Any:
            def inside(*inner: Any, **more: Any) -> Any:
                depth[0] += 1
                try:
                    return fn(*inner, **more)
                finally:
                    depth[0] -= 1

            return original(inside, *args, **kwargs)

        return map_variables

    with replaced(lift, "map_variables", wrap):
        yield lambda: depth[0] > 0


def shapes_text(values: Any) -> str:
    """The arrays in ``values`` as ``float32[8,28]``."""
    arrays = [leaf for leaf in jax.tree_util.tree_leaves(values) if hasattr(leaf, "dtype")]
    return ", ".join(array_text(a.dtype, a.shape) for a in arrays) or "no array"
