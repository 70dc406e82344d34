"""Tags: how the inputs and outputs of module calls are marked in a traced computation.

A tag is ``jax.ad_checkpoint.checkpoint_name``: an identity with rules for differentiation, batching and lowering, so
that it survives every transformation that a model uses. Its name carries all that must be known about the place,
because JAX reuses cached inner computations: nothing outside the name may be needed to understand it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import jax
import msgspec
from jax.ad_checkpoint import checkpoint_name

_MARK: Final = "surgery:"


class Label(msgspec.Struct, frozen=True):
    """What a tag says: one array that goes into or comes out of a call.

    ``path`` is the module's, printed; '' is the model itself. ``role`` is ``in``, ``out``, ``sow`` or ``perturb``; for
    the last two ``method`` is the name under which the value is sown. ``leaf`` says where the array stands in the
    arguments or in the result: '' for a single array, else ``[0]`` or ``['logits']``. ``leaves`` counts them.
    """

    path: str
    method: str
    kind: str
    role: str
    leaf: str = ""
    leaves: int = 1

    @property
    def text(self) -> str:
        """The place as people read it: ``Dense_0``, ``encoder.encode``, ``.`` for the model itself."""
        place = self.path or "."
        if self.role in ("sow", "perturb"):
            place = f"{self.path}/{self.method}".lstrip("/")
        elif self.method != "__call__":
            place = f"{place}.{self.method}" if self.path else self.method
        return place + self.leaf


def label_of(equation: Any) -> Label | None:
    """The label of a tag's equation; None for any other equation."""
    if equation.primitive.name != "name":
        return None
    name = equation.params["name"]
    if not isinstance(name, str) or not name.startswith(_MARK):
        return None
    return Label(*json.loads(name.removeprefix(_MARK)))


def tag(value: Any, path: str, method: str, kind: str, role: str) -> Any:
    """``value`` with every array in it tagged; what is no array stays as it is."""
    flat, structure = jax.tree_util.tree_flatten_with_path(value)
    arrays = sum(isinstance(leaf, jax.Array) for _, leaf in flat)
    tagged = []
    for where, leaf in flat:
        if isinstance(leaf, jax.Array):
            place = jax.tree_util.keystr(where)
            parts = [path, method, kind, role, place, arrays]
            tagged.append(checkpoint_name(leaf, _MARK + json.dumps(parts)))
        else:
            tagged.append(leaf)
    return jax.tree_util.tree_unflatten(structure, tagged)


def tag_inputs(
    args: tuple[Any, ...], kwargs: dict[str, Any], path: str, method: str, kind: str
) -> Any:
    """The arguments of a call, tagged; a single one is not numbered."""
    if len(args) == 1 and not kwargs:
        return (tag(args[0], path, method, kind, "in"),), {}
    return tag(args, path, method, kind, "in"), tag(kwargs, path, method, kind, "in")


class OpenCalls:
    """The module calls that are being traced, so that a call to ``super().__call__`` is no call of its own."""

    def __init__(self) -> None:
        self._open: list[tuple[Any, ...]] = []

    @contextmanager
    def entering(self, *call: Any) -> Iterator[bool]:
        """Yields False if the innermost open call is the same."""
        is_new = not self._open or self._open[-1] != call
        self._open.append(call)
        try:
            yield is_new
        finally:
            self._open.pop()


@contextmanager
def replaced(holder: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """While the block runs, ``holder.name`` is what ``make`` makes of it."""
    inherited = name not in vars(holder)
    original = getattr(holder, name)
    setattr(holder, name, make(original))
    try:
        yield
    finally:
        if inherited:
            delattr(holder, name)
        else:
            setattr(holder, name, original)


@contextmanager
def tagged_sowing(
    module_class: Any, path_of: Callable[[Any], str], *, does_store: bool
) -> Iterator[None]:
    """While the block runs, whatever modules sow or perturb is tagged.

    ``does_store``: both do what they did before, too; where that would change the module, the tag is all there is.
    """

    def sowing(original: Any) -> Any:
        def sow(
            self: Any, collection: Any, name: str, value: Any, *args: Any, **kwargs: Any
        ) -> Any:
            kind = collection if isinstance(collection, str) else collection.__name__
            marked = tag(value, path_of(self), name, kind, "sow")
            return original(self, collection, name, marked, *args, **kwargs) if does_store else True

        return sow

    def perturbing(original: Any) -> Any:
        def perturb(self: Any, name: str, value: Any, *args: Any, **kwargs: Any) -> Any:
            if does_store:
                value = original(self, name, value, *args, **kwargs)
            return tag(value, path_of(self), name, "perturbations", "perturb")

        return perturb

    with replaced(module_class, "sow", sowing), replaced(module_class, "perturb", perturbing):
        yield
