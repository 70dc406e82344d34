"""How a model is called: its inputs, static arguments, random streams, and what of it is run."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import jax
import jax.numpy as jnp
import msgspec

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.model.inputs import Input
from surgery_cli.script.user_code import parameters_of
from surgery_cli.words.quantities import array_text

Path = tuple[str, ...]
"""The keys of a variable, as text."""

Slot = tuple[str, Path]
"""A variable of a model: its collection, and its path in there."""


class Expected(msgspec.Struct, frozen=True):
    """A variable that the model needs. ``is_optional``: the model can make it itself (state of random streams).

    ``is_derived``: its shape is the input's at its making (a cache), and the model takes another as it finds it.
    """

    shape: tuple[int, ...]
    dtype: str
    is_optional: bool = False
    is_derived: bool = False

    @property
    def text(self) -> str:
        return array_text(self.dtype, self.shape)


Collections = dict[str, dict[Path, Expected]]
Variables = dict[str, dict[Path, Any]]


_KEY_IMPLEMENTATIONS: Final = ("threefry2x32", "rbg", "unsafe_rbg")


def dtype_text(dtype: Any) -> str:
    """The dtype's name; of typed keys ``key<threefry2x32>``, as a checkpoint's metadata names the implementation."""
    if not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return str(dtype)
    for name in _KEY_IMPLEMENTATIONS:
        if jax.eval_shape(lambda name=name: jax.random.key(0, impl=name)).dtype == dtype:
            return f"key<{name}>"
    return str(dtype)


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model.

    ``positional`` and ``named`` are arrays or their shapes; ``batch.image`` is an entry of the dict that is
    the argument ``batch``. ``for_loss`` are inputs that the model does not take.
    ``static`` are arguments that are Python values. ``run`` names a method or a submodule, '' for the model itself.
    ``vmap_axis`` is the name of the axis over which the inputs' first axis is mapped, '' for none.
    """

    positional: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    for_loss: dict[str, Any] = {}
    names: tuple[str, ...] = ()
    """The names of the positional inputs in the model's signature, as far as known."""
    takes: tuple[str, ...] = ()
    """Every parameter of what is called; empty if its signature is not known."""
    static: dict[str, Any] = {}
    run: str = ""
    methods: tuple[str, ...] = ()
    """Methods besides ``__call__`` whose calls are wanted, for models in which each must be tagged on its own."""
    vmap_axis: str = ""
    seed: int = 0
    streams: dict[str, int] = {}

    @property
    def arrays(self) -> list[Any]:
        """Every input, positional ones first."""
        return [*self.positional, *self.named.values()]

    @property
    def by_name(self) -> dict[str, Any]:
        """Every input under its name, as a loss takes them."""
        return {
            **dict(zip(self.names, self.positional, strict=False)),
            **_nested(self.named),
            **_nested(self.for_loss),
        }

    def filled(self, arrays: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and named arguments with ``arrays`` (as `arrays` orders them) in their places."""
        count = len(self.positional)
        return tuple(arrays[:count]), _nested(dict(zip(self.named, arrays[count:], strict=True)))

    def mapped(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """``function(*positional, **named)``, mapped over the first axis where the call says so."""
        args, kwargs = self.filled(arrays)
        if not self.vmap_axis:
            return function(*args, **kwargs)
        mapped = jax.vmap(lambda a, k: function(*a, **k), axis_name=self.vmap_axis)
        return mapped(args, kwargs)

    def with_static_of(self, function: Any, *, known: Mapping[str, Any]) -> Call:
        """This call with the static arguments that ``function`` takes; others must be ``known``.

        Raises:
            SurgeryError: one is neither.
        """
        parameters = parameters_of(function)
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return self
        _check_static([n for n in self.static if n not in known], parameters)
        taken = {n: v for n, v in self.static.items() if n in parameters}
        return msgspec.structs.replace(self, static=taken)

    def example(self) -> list[jax.ShapeDtypeStruct]:
        """Shapes of the inputs as the model sees them: without the mapped axis."""
        cut = int(bool(self.vmap_axis))
        return [jax.ShapeDtypeStruct(a.shape[cut:], a.dtype) for a in self.arrays]


class Model(Protocol):
    """A model of either Flax API, ready to be traced."""

    kind: str
    call: Call

    @property
    def is_taken_apart(self) -> bool:
        """True if what runs was found by a run of the whole model; known once the collections are."""

    def collections(self) -> Collections:
        """The variables that the call needs, from shapes alone."""

    def apply(self, variables: Variables, arrays: Sequence[Any]) -> Any:
        """The output of the call, with every module call tagged; to be traced."""

    def streams(self, used: Collection[Slot]) -> set[str]:
        """The random streams from which the traced call draws; ``used`` are the variables that it needs."""


def make_call(
    inputs: Sequence[Input],
    function: Any,
    *,
    static: Mapping[str, Any],
    run: str,
    methods: tuple[str, ...],
    vmap_axis: str,
    seed: int,
    streams: Mapping[str, int],
) -> Call:
    """Sort the inputs by the signature of what is called; named ones that it does not take are for the loss.

    Raises:
        SurgeryError: nothing is left for the model, or a static argument is unknown.
    """
    parameters = parameters_of(function) if function is not None else {}
    kinds = {p.kind for p in parameters.values()}
    names = [
        n for n, p in parameters.items() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    takes_any = not parameters or any(kind.name == "VAR_KEYWORD" for kind in kinds)
    named = {i.name: i.values for i in inputs if i.name}
    positional = tuple(i.values for i in inputs if not i.name)
    own = {n: v for n, v in named.items() if takes_any or n.partition(".")[0] in parameters}
    if not takes_any:
        _check_static(static, parameters)
    if not positional and not own and names and inputs:
        raise SurgeryError(
            "none of the inputs is for the model",
            why=f"it takes {', '.join(names)}; the inputs are {', '.join(named)}",
            fix=f"name one of them: `--input {names[0]}=…`, or if it is a dict, its entries: "
            f"`--input {names[0]}.KEY=…`",
            field="input",
        )
    return Call(
        positional=positional,
        named=own,
        for_loss={n: v for n, v in named.items() if n not in own},
        names=tuple(names[: len(positional)]),
        takes=tuple(parameters),
        static=dict(static),
        run=run,
        methods=methods,
        vmap_axis=vmap_axis,
        seed=seed,
        streams=dict(streams),
    )


def _nested(named: Mapping[str, Any]) -> dict[str, Any]:
    """``{"batch.image": x}`` as ``{"batch": {"image": x}}``."""
    found: dict[str, Any] = {}
    for name, value in named.items():
        *outer, last = name.split(".")
        holder = found
        for key in outer:
            holder = holder.setdefault(key, {})
        holder[last] = value
    return found


def _check_static(names: Iterable[str], parameters: Mapping[str, Any]) -> None:
    unknown = [name for name in names if name not in parameters]
    if unknown:
        raise SurgeryError(
            f"the model's call takes no '{unknown[0]}'",
            why="it takes " + ", ".join(f"'{n}'" for n in parameters),
            field="call",
        )


_UNBOUND_AXIS: Final = re.compile(r"unbound axis name: (\w+)")
_MISSING: Final = re.compile(
    r"missing \d+ required (?:positional|keyword-only) arguments?: '(\w+)'"
)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """While the block runs, an error of the user's model that an option would have spared names the option."""
    try:
        yield
    except SurgeryError as error:
        message = str(error.__cause__)
        if axis := _UNBOUND_AXIS.search(message):
            fix = f"map the batch's first axis under this name: `--vmap {axis[1]}`"
        elif name := _MISSING.search(message):
            fix = (
                f"give it: `--input {name[1]}=…`, an entry of a dict as `--input {name[1]}.KEY=…`, "
                f"or if it is no array, `--call {name[1]}=…`"
            )
        else:
            raise
        problem = msgspec.structs.replace(error.problems[0], fix=fix)
        raise error.retold([problem]) from error.__cause__


def unbound(function: Any) -> Any:
    """The function without its ``self``, for looking at its signature."""
    if function is None:
        return None
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]
    except (TypeError, ValueError):
        return None

    def shown(*_: Any, **__: Any) -> None: ...

    shown.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return shown
