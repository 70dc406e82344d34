"""What the value operations do to a leaf, and to its twins, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np

from tests.random_plans import lora, twins
from tests.random_plans.integers import with_integers
from tests.random_plans.merges import FORMULAS
from tests.random_plans.model import Fields, Leaf, Path, Refused, State, Words, printed
from tests.random_plans.patterns import patterns_of, select
from tests.random_plans.world import World

_FLOATS = ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")


def wide(dtype: str) -> Any:
    """The dtype in which a leaf is computed: float32, or its own if that is wider."""
    if dtype in ("float64", "complex64", "complex128"):
        return np.dtype(dtype)
    return np.dtype("float32")


def rounded(values: Any, dtype: str) -> np.ndarray:
    """To nearest even, once; what overflows becomes infinite or NaN, quietly."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.dtype(dtype))


def put(
    state: State, path: Path, value: Any, *, ulps: float = 0, known: bool | None = None
) -> None:
    """Give a leaf another value; Python numbers stay Python numbers, and what is not known stays so."""
    leaf = state.leaves[path]
    known = leaf.known if known is None else known
    if leaf.is_python:
        value = type(leaf.value)(np.asarray(value)[()])
    state.leaves[path] = leaf.with_value(value, ulps=ulps, known=known)


def _sizes(values: Any) -> np.ndarray:
    array = np.asarray(values)
    return np.abs(array.astype("complex128" if array.dtype.kind == "c" else "float64"))


def check_loss(state: State, path: Path, old: Any, new: Any, *, zeros: bool = True) -> None:
    """New infinities are refused; whether zeros are a loss, the program may say."""
    if not state.leaves[path].known:
        state.may[1] = f"'{printed(path)}' is not known"
        return
    before, after = _sizes(old), _sizes(new)
    if not np.isfinite(after[np.isfinite(before)]).all():
        state.refuse_value(f"'{printed(path)}' gets infinities")
    if zeros and ((after == 0) & (before != 0)).any():
        state.may[1] = f"'{printed(path)}' gets zeros"


# --- factors -----------------------------------------------------------------------------------------------------


def _check_numeric(leaf: Leaf, path: Path) -> None:
    if not (leaf.is_floating or leaf.is_complex):
        raise Refused(2, f"'{printed(path)}' is not floating")


def rescale(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    for path in selected:
        _check_numeric(state.leaves[path], path)
    twins.refuse_negative(state, selected, edit["by"])
    if any("hyperparams" in path for path in selected):
        state.may[2] = "a factor may take a setting out of its range"
    before = state.copy()
    factors: dict[Path, Any] = {}
    for path in selected:
        leaf = state.leaves[path]
        factors[path] = factor = _factor(edit["by"], leaf, world)
        dtype = wide(leaf.dtype)
        with np.errstate(all="ignore"):
            new = np.asarray(leaf.value).astype(dtype) * _weak(factor, dtype)
        new = rounded(new, leaf.dtype)
        check_loss(
            state, path, leaf.value, new, zeros=not (isinstance(factor, float) and not factor)
        )
        put(state, path, new)
    twins.follow_factor(state, before, edit, factors, words)


def _factor(by: float | str, leaf: Leaf, world: World) -> Any:
    if not isinstance(by, str):
        return float(by)
    array = world.array(by)
    if len(array.shape) > len(leaf.shape):
        raise Refused(2, "the factor does not broadcast")
    for n, m in zip(array.shape[::-1], leaf.shape[::-1], strict=False):
        if n not in (1, m):
            raise Refused(2, "the factor does not broadcast")
    return array


def _weak(factor: Any, dtype: Any) -> Any:
    """A number takes the leaf's width; an array has its own."""
    return dtype.type(factor) if isinstance(factor, float) else factor


def normalize(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    if edit.get("to", 1.0) <= 0:
        raise Refused(2, "a norm is above 0")
    for path in selected:
        _check_norm(state.leaves[path], path, edit)
    before = state.copy()
    factors: dict[Path, Any] = {}
    for path in selected:
        leaf = state.leaves[path]
        if not leaf.known:
            put(state, path, leaf.value, known=False)
            factors[path] = math.nan
            continue
        norms = _norms(np.asarray(leaf.value), edit)
        if not np.isfinite(norms).all():
            state.refuse_value(f"the norm of '{printed(path)}' is not finite")
            norms = np.ones_like(norms)
        zero = norms == 0
        if zero.any() and edit.get("on_zero", "error") == "error":
            state.refuse_value(f"a norm of '{printed(path)}' is 0")
        factor = np.where(zero, 1.0, edit.get("to", 1.0) / np.where(zero, 1.0, norms))
        factors[path] = factor if factor.size > 1 else float(factor.reshape(()))
        new = rounded(np.asarray(leaf.value).astype(_double(leaf.dtype)) * factor, leaf.dtype)
        check_loss(state, path, leaf.value, new)
        put(state, path, new, ulps=1 if leaf.dtype in ("bfloat16", "float16") else 4)
    twins.follow_factor(state, before, edit, factors, words)


def _double(dtype: str) -> str:
    return "complex128" if dtype.startswith("complex") else "float64"


def _check_norm(leaf: Leaf, path: Path, edit: Fields) -> None:
    _check_numeric(leaf, path)
    ndim = len(leaf.shape)
    axes = _axes(edit.get("axis"), ndim)
    if edit.get("norm") == "spectral" and (len(axes) < 2 or (edit.get("axis") and len(axes) > 2)):
        raise Refused(2, f"'{printed(path)}' is no matrix")


def _axes(given: Any, ndim: int) -> tuple[int, ...]:
    if given is None:
        return tuple(range(ndim))
    axes = [given] if isinstance(given, int) else list(given)
    if any(not -ndim <= n < ndim for n in axes):
        raise Refused(2, "no such axis")
    found = tuple(n % ndim for n in axes)
    if len(set(found)) < len(found):
        raise Refused(2, "an axis twice")
    return found


def _norms(value: np.ndarray, edit: Fields) -> np.ndarray:
    x = np.abs(value.astype(_double(value.dtype.name)))
    axes = _axes(edit.get("axis"), x.ndim)
    norm = edit.get("norm", "l2")
    if norm == "l1":
        return x.sum(axis=axes, keepdims=True)
    if norm == "max":
        return x.max(axis=axes, keepdims=True)
    if norm == "spectral":
        return _spectral(value.astype(_double(value.dtype.name)), edit.get("axis"), axes)
    square = (x * x).sum(axis=axes, keepdims=True)
    count = math.prod(x.shape[axis] for axis in axes)
    return np.sqrt(square / count if norm == "rms" else square)


def _spectral(x: np.ndarray, axis: Any, axes: tuple[int, ...]) -> np.ndarray:
    if axis is None:
        largest = np.linalg.svd(x.reshape(-1, x.shape[-1]), compute_uv=False).max()
        return np.full((1,) * x.ndim, largest)
    moved = np.moveaxis(x, axes, (-2, -1))
    return np.expand_dims(np.linalg.svd(moved, compute_uv=False).max(axis=-1), axes)


# --- new values --------------------------------------------------------------------------------------------------


def _number_in(number: float, leaf: Leaf) -> np.ndarray:
    """The number in the leaf's dtype.

    Raises:
        Refused: the dtype does not hold it.
    """
    if leaf.is_integer:
        limits = np.iinfo(leaf.dtype)
        if number != int(number) or not limits.min <= number <= limits.max:
            raise Refused(2, f"{leaf.dtype} does not hold {number}")
        return np.asarray(int(number), leaf.dtype)
    part = {"complex64": "float32", "complex128": "float64"}.get(leaf.dtype, leaf.dtype)
    if abs(number) > float(ml_dtypes.finfo(part).max):
        raise Refused(2, f"{leaf.dtype} does not hold {number}")
    return rounded(np.float64(number), leaf.dtype)


def _may_be_out_of_range(state: State, path: Path, number: float) -> None:
    """What counts steps is not negative, and settings of an optimizer have ranges of their own."""
    if (state.leaves[path].is_integer and number < 0) or "hyperparams" in path:
        state.may[2] = f"{number} may be out of the range of '{printed(path)}'"


def replace_values(state: State, edit: Fields, world: World, words: Words) -> None:
    given = edit["with"]
    before = state.copy()
    if not isinstance(given, str):
        selected = select(state, edit)
        for path in selected:
            leaf = state.leaves[path]
            if not (leaf.is_floating or leaf.is_integer or leaf.is_complex):
                raise Refused(2, f"no number stands in '{printed(path)}'")
            value = _number_in(given, leaf)
            _may_be_out_of_range(state, path, given)
            if given and not np.any(value):
                state.may[1] = f"{given} becomes 0"
            put(state, path, np.full(leaf.shape, value), known=True)
        twins.refuse_negative(before, selected, given)
        twins.follow_new_values(state, before, edit, selected, words)
        return
    selected = select(state, edit)
    for path in selected:
        leaf = state.leaves[path]
        source, place, value = world.counterpart(given, path, edit)
        _take(state, path, leaf, value, edit, (source, place))
    twins.follow_new_values(state, before, edit, selected, words, world=world)


def _take(
    state: State, path: Path, leaf: Leaf, value: Any, edit: Fields, home: tuple[str, Path]
) -> None:
    """A leaf of a donor in the place of another."""
    donor = Leaf(value)
    if donor.is_empty or donor.is_text != leaf.is_text or donor.shape != leaf.shape:
        raise Refused(2, f"the donor's leaf does not fit '{printed(path)}'")
    if leaf.is_text:
        state.leaves[path] = Leaf(value, home)
        return
    new = np.asarray(value)
    if donor.dtype != leaf.dtype:
        families = [family(donor), family(leaf)]
        if not edit.get("cast") or families[0] != families[1]:
            raise Refused(2, f"the donor's leaf has another dtype than '{printed(path)}'")
        new = cast_values(state, path, new, leaf.dtype, donor.dtype)
    if leaf.is_python:
        new = type(leaf.value)(new[()])
    state.leaves[path] = Leaf(new, home)


def family(leaf: Leaf) -> str:
    names = {"float": leaf.is_floating, "int": leaf.is_integer, "complex": leaf.is_complex}
    return next((name for name, belongs in names.items() if belongs), leaf.dtype)


def reinit(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    for path in selected:
        _check_numeric(state.leaves[path], path)
    constants = {"zeros": 0.0, "ones": 1.0, "constant": edit.get("value")}
    constant = constants.get(edit["init"])
    before = state.copy()
    for path in selected:
        leaf = state.leaves[path]
        shape = _new_shape(edit.get("shape"), leaf, path)
        if constant is None:
            if len(shape) < 2 and edit["init"] not in ("normal", "uniform"):
                raise Refused(2, "no fans")
            is_same = shape == leaf.shape
            value = np.asarray(leaf.value) if is_same else np.zeros(shape, leaf.dtype)
            put(state, path, value, known=False)
        else:
            value = _number_in(constant, leaf)
            if constant and not np.any(value):
                state.may[1] = f"{constant} becomes 0"
            put(state, path, np.full(shape, value), known=True)
    signed = constant if constant is not None else (0.0 if edit["init"] == "uniform" else -1.0)
    twins.refuse_negative(before, selected, signed)
    if any(path in before.slots and "shape" in edit for path in selected):
        state.may[2] = "a twin alone need not mirror its param any more"
    twins.follow_new_values(state, before, edit, selected, words)


def _new_shape(given: Any, leaf: Leaf, path: Path) -> tuple[int, ...]:
    """The shape that an edit gives: sizes, `*` for an axis as it is, `...` for all others."""
    if given is None:
        return leaf.shape
    parts = list(given) if isinstance(given, list) else str(given).split(", ")
    if leaf.is_python:
        raise Refused(2, f"'{printed(path)}' is no array")
    if "..." in parts:
        at, more = parts.index("..."), len(leaf.shape) - len(parts) + 1
        if more < 0:
            raise Refused(2, f"'{printed(path)}' has not so many axes")
        parts[at : at + 1] = leaf.shape[at : at + more]
    elif "*" in parts and len(parts) != len(leaf.shape):
        raise Refused(2, f"'{printed(path)}' has other axes")
    return tuple(
        n if part == "*" else int(part)
        for n, part in zip([*leaf.shape, *parts], parts, strict=False)
    )


def set_number(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    before = state.copy()
    to = edit["to"]
    for path in selected:
        leaf = state.leaves[path]
        if not leaf.dtype or math.prod(leaf.shape) != 1 or leaf.is_complex:
            raise Refused(2, f"'{printed(path)}' is no single number")
        if isinstance(to, bool) != (leaf.dtype == "bool"):
            raise Refused(2, "a flag is no number")
        value = np.asarray(to) if isinstance(to, bool) else _number_in(to, leaf)
        _may_be_out_of_range(state, path, to)
        if to and not np.any(value):
            state.may[1] = f"{to} becomes 0"
        put(state, path, np.full(leaf.shape, value), known=True)
    twins.refuse_negative(before, selected, -1.0 if to is not True and to < 0 else 1.0)
    for path in selected:
        if path in state.clocks:
            twins.set_clock(state, path, to)
    twins.follow_new_values(state, before, edit, selected, words)


# --- dtypes and averages -----------------------------------------------------------------------------------------


def cast(state: State, edit: Fields, world: World, words: Words) -> None:
    to = edit["to"]
    everything = not edit.get("at")
    selected = (
        select(state, edit, everything=everything)
        if not everything
        else [
            path
            for path in select(state, edit, everything=True)
            if state.leaves[path].is_floating and not state.leaves[path].is_python
        ]
    )
    if everything and not selected and not edit.get("optional"):
        raise Refused(2, "nothing is floating")
    before = state.copy()
    for path in selected:
        leaf = state.leaves[path]
        if leaf.dtype == to and not leaf.is_python:
            continue
        if not leaf.dtype or leaf.is_python or family(leaf) != family(Leaf(np.zeros((), to))):
            raise Refused(2, f"'{printed(path)}' is not cast to {to}")
        if leaf.is_integer and not edit.get("where_dtype", "").startswith(("int", "uint")):
            raise Refused(2, "an integer leaf, and the edit does not say that it means it")
        new = cast_values(state, path, np.asarray(leaf.value), to, leaf.dtype, edit)
        state.leaves[path] = leaf.with_value(new, known=leaf.known)
    changed = [p for p in selected if state.leaves[p] is not before.leaves[p]]
    twins.follow_cast(state, before, edit, changed, words)


def cast_values(
    state: State,
    path: Path,
    value: np.ndarray,
    to: str,
    dtype: str,
    edit: Fields = MappingProxyType({}),
) -> np.ndarray:
    new = rounded(value, to)
    if to.startswith(("int", "uint")):
        if (new.astype(dtype) != value).any() or ((new < 0) != (value < 0)).any():
            state.refuse_value(f"'{printed(path)}' does not fit {to}")
        return new
    check_loss(state, path, value, new, zeros=edit.get("underflow") != "keep")
    return new


def _shares(edit: Fields, count: int) -> list[float]:
    weights = list(edit.get("weights", ())) or [1.0] * count
    if len(weights) != count or not sum(weights):
        raise Refused(2, "weights do not fit the members")
    return [weight / math.fsum(weights) for weight in weights]


def average(state: State, edit: Fields, world: World, words: Words) -> None:
    everything = not edit.get("at")
    selected = select(state, edit, everything=everything)
    if everything:
        leaves = state.leaves
        selected = [p for p in selected if leaves[p].is_floating and not leaves[p].is_python]
        if not selected and not edit.get("optional"):
            raise Refused(2, "nothing is floating")
    named = edit.get("with", ())
    members = [named] if isinstance(named, str) else list(named)
    if not selected:
        return
    shares = _shares(edit, 1 + len(members))
    if min(shares) < 0:
        slots = twins.slots_of(state, selected) if twins.policy_of(edit) == "transform" else []
        twins.refuse_negative_weights(state, [*selected, *(slot.path for slot in slots)])
    before = state.copy()

    def blocks_of(path: Path) -> list[Any]:
        leaf = state.leaves[path]
        blocks = [np.asarray(leaf.value).astype(_double(leaf.dtype))]
        for member in members:
            other = world.leaf_of(member, path)
            if edit.get("integers") and Leaf(other).is_integer:
                other = np.float64(other)
            if np.shape(other) != leaf.shape or family(Leaf(other)) != family(leaf):
                raise Refused(2, f"a member's leaf does not fit '{printed(path)}'")
            blocks.append(np.asarray(other).astype(_double(leaf.dtype)))
        return blocks

    def mean(path: Path) -> Any:
        total = sum(share * block for share, block in zip(shares, blocks_of(path), strict=True))
        return rounded(total, state.leaves[path].dtype)

    for path in selected:
        leaf = state.leaves[path]
        _check_numeric(leaf, path)
        blocks, new = blocks_of(path), mean(path)
        check_loss(state, path, leaf.value, new, zeros=False)
        put(state, path, new, ulps=1, known=leaf.known)
        if leaf.dtype in ("float64", "complex128") or min(shares) < 0:  # sums may cancel
            largest = max(float(np.abs(block).max(initial=0.0)) for block in blocks)
            state.leaves[path] = replace(state.leaves[path], ulps=8 * max(1.0, largest))
    twins.follow_average(state, before, edit, selected, words, mean)


# --- shifts ------------------------------------------------------------------------------------------------------


def add_scaled(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    before = state.copy()
    for path in selected:
        leaf = before.leaves[path]
        _check_numeric(leaf, path)
        other, is_known = _added(before, path, edit, world)
        fits = other.is_floating or (other.is_complex and leaf.is_complex)
        if other.shape != leaf.shape or not fits:
            raise Refused(2, f"nothing is added to '{printed(path)}'")
        wide = _double("complex64" if leaf.is_complex else "float32")
        with np.errstate(all="ignore"):
            term = np.asarray(other.value).astype(_double(other.dtype)) * edit["scale"]
            total = np.asarray(leaf.value).astype(wide) + term
        new = rounded(total, leaf.dtype)
        if not other.known:
            state.may[1] = "what is added is not known"
        check_loss(state, path, leaf.value, new, zeros=False)
        if ((np.asarray(new) == 0) & (total != 0)).any():
            state.may[1] = f"'{printed(path)}' gets zeros"
        put(state, path, new, known=leaf.known and is_known)
        if other.ulps:
            state.leaves[path] = replace(state.leaves[path], ulps=64.0, narrowest=other.narrowest)
    _shifted(state, before, edit, selected, words)


def _added(state: State, path: Path, edit: Fields, world: World) -> tuple[Leaf, bool]:
    if "with" in edit:
        number = edit["with"]
        if not isinstance(number, str):
            return Leaf(np.full(state.leaves[path].shape, number, np.float64)), True
        return Leaf(world.leaf_of(number, path)), True
    start = patterns_of(edit["at"])[0].nodes(path)[-1]
    wanted = "/".join([edit["from"], *map(str, path[len(start) :])])
    found = [p for p, leaf in state.leaves.items() if printed(p) == wanted and not leaf.is_empty]
    if len(found) != 1:
        raise Refused(2, f"{len(found)} leaves '{wanted}'")
    return state.leaves[found[0]], state.leaves[found[0]].known


def clip(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    by_norm = "norm" in edit
    for path in selected:
        leaf = state.leaves[path]
        _check_numeric(leaf, path)
        if by_norm:
            _axes(edit.get("axis"), len(leaf.shape))
        elif leaf.is_complex:
            raise Refused(2, "no range")
        for bound in ("min", "max"):
            if bound in edit:
                _number_in(edit[bound], leaf)
    before = state.copy()
    factors: dict[Path, Any] = {}
    for path in selected:
        leaf = state.leaves[path]
        value = np.asarray(leaf.value)
        if not leaf.known:
            factors[path] = math.nan
            put(state, path, value, known=False)
        elif by_norm:
            factors[path] = _clipped(state, path, edit)
        else:
            low, high = (edit.get(bound) for bound in ("min", "max"))
            put(
                state, path, rounded(np.clip(value.astype(wide(leaf.dtype)), low, high), leaf.dtype)
            )
    if by_norm:
        twins.follow_factor(state, before, edit, factors, words)
    else:
        _shifted(state, before, edit, selected, words, negative=edit.get("max", 0) < 0)


def _clipped(state: State, path: Path, edit: Fields) -> Any:
    """Bring a leaf below a norm; the factor."""
    leaf = state.leaves[path]
    norms = _norms(np.asarray(leaf.value), {**edit, "norm": "l2"})
    if not np.isfinite(norms).all():
        state.refuse_value(f"the norm of '{printed(path)}' is not finite")
        norms = np.ones_like(norms)
    factor = np.minimum(1.0, edit["norm"] / np.where(norms == 0, 1.0, norms))
    new = rounded(np.asarray(leaf.value).astype(_double(leaf.dtype)) * factor, leaf.dtype)
    check_loss(state, path, leaf.value, new)
    put(state, path, new, ulps=1 if leaf.dtype in ("bfloat16", "float16") else 4)
    return factor if factor.size > 1 else float(factor.reshape(()))


def perturb(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    before = state.copy()
    for path in selected:
        leaf = state.leaves[path]
        _check_numeric(leaf, path)
        if leaf.is_complex:
            raise Refused(2, "random values are real")
        put(state, path, np.asarray(leaf.value), known=False)
        state.may[1] = "random values may be lost, or meet what is not finite"
    _shifted(state, before, edit, selected, words)


def map_halved(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    before = state.copy()
    for path in selected:
        leaf = state.leaves[path]
        _check_numeric(leaf, path)
        value = np.asarray(leaf.value)
        with np.errstate(all="ignore"):
            put(state, path, value * value.dtype.type(0.5), known=leaf.known)
    if edit.get("effect", "shifts") == "shifts":
        _shifted(state, before, edit, selected, words)
    else:
        twins.follow_new_values(state, before, edit, selected, words)


def _shifted(
    state: State,
    before: State,
    edit: Fields,
    selected: Iterable[Path],
    words: Words,
    *,
    negative: bool = True,
) -> None:
    twins.refuse_negative(before, selected, -1.0 if negative else 1.0)
    twins.follow_shift(state, before, edit, selected, words)


def over_steps(state: State, edit: Fields, world: World, words: Words) -> None:
    """Means over the steps of a run, which none of the drawn checkpoints is."""
    if select(state, edit):
        raise Refused(2, "the checkpoint is no run of several steps")


def merge(state: State, edit: Fields, world: World, words: Words) -> None:
    """A leaf and its like in other checkpoints, by the formula of a paper."""
    selected = select(state, edit)
    before = state.copy()
    named = edit["with"]
    members = [named] if isinstance(named, str) else list(named)
    name = edit["op"]
    is_between = name in ("karcher", "model-stock") or 0 <= edit.get("t", -1) <= 1
    is_mean = name == "interpolate" and edit.get("method") is None and is_between
    if not is_between:
        twins.refuse_negative_weights(state, selected)

    def blocks_of(path: Path) -> list[Any]:
        leaf = before.leaves[path]
        others = [world.leaf_of(member, path) for member in members]
        if any(np.shape(o) != leaf.shape or family(Leaf(o)) != family(leaf) for o in others):
            raise Refused(2, f"a member's leaf does not fit '{printed(path)}'")
        return [np.asarray(x).astype(_double(leaf.dtype)) for x in (leaf.value, *others)]

    def mean(path: Path) -> Any:
        return rounded(
            FORMULAS[name](edit, blocks_of(path), before.leaves[path].dtype).values,
            before.leaves[path].dtype,
        )

    for path in selected:
        leaf = before.leaves[path]
        _check_numeric(leaf, path)
        if leaf.is_complex and name in ("ties", "dare", "breadcrumbs"):
            raise Refused(2, "complex numbers have no sign")
        blocks = blocks_of(path)
        if not np.size(leaf.value):
            continue
        with np.errstate(all="ignore"):
            found = FORMULAS[name](edit, blocks, leaf.dtype)
        is_sure = leaf.known and found.is_known and not (found.chooses and leaf.ulps)
        new = rounded(leaf.value if found.values is None else found.values, leaf.dtype)
        if not is_sure or found.values is None:
            state.may[1] = f"'{printed(path)}' is not known"
        else:
            check_loss(state, path, leaf.value, new, zeros=False)
        if ((np.asarray(new) == 0) & (np.asarray(leaf.value) != 0)).any() or not new.all():
            state.may[1] = f"'{printed(path)}' gets zeros"
        put(state, path, new, known=is_sure)
        largest = max(float(np.abs(block).max(initial=0.0)) for block in blocks)
        state.leaves[path] = replace(state.leaves[path], ulps=64 * max(1.0, largest))
    if is_mean:
        twins.follow_average(state, before, edit, selected, words, mean)
    else:
        _shifted(state, before, edit, selected, words)


def merge_lora(state: State, edit: Fields, world: World, words: Words) -> None:
    """A·B of a file is added to one kernel, or subtracted."""
    selected = select(state, edit)
    before = state.copy()
    for path in selected:
        leaf = before.leaves[path]
        _check_numeric(leaf, path)
        if leaf.is_complex or not lora.fits(edit, leaf.shape):
            raise Refused(2, f"A and B do not make '{printed(path)}'")
        added = lora.product(edit) * (1 if edit["op"] == "merge-lora" else -1)
        with np.errstate(all="ignore"):
            total = np.asarray(leaf.value).astype("f8") + added
        new = rounded(total, leaf.dtype)
        check_loss(state, path, leaf.value, new, zeros=False)
        if ((np.asarray(new) == 0) & (total != 0)).any():
            state.may[1] = f"'{printed(path)}' gets zeros"
        put(state, path, new, known=leaf.known)
        largest = float(np.abs(added).max(initial=1.0))
        state.leaves[path] = replace(state.leaves[path], ulps=64 * max(1.0, largest))
    _shifted(state, before, edit, selected, words)


# --- zeros -------------------------------------------------------------------------------------------------------


def mask(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    masks = {}
    for path in selected:
        leaf = state.leaves[path]
        _check_numeric(leaf, path)
        masks[path] = np.broadcast_to(_factor(edit["by"], leaf, world) != 0, leaf.shape)
    _masked(state, edit, masks, words)


def prune(state: State, edit: Fields, world: World, words: Words) -> None:
    selected = select(state, edit)
    for path in selected:
        _check_numeric(state.leaves[path], path)
    if "pattern" in edit:
        masks = {path: _largest_of_groups(state.leaves[path], edit) for path in selected}
    elif edit.get("over") == "all":
        masks = _largest(state, [path for path in state.leaves if path in set(selected)], edit)
    else:
        masks = {path: _largest(state, [path], edit)[path] for path in selected}
    for path in selected:
        if np.isnan(np.asarray(state.leaves[path].value).astype("complex128")).any():
            state.refuse_value(f"'{printed(path)}' has NaN")
    _masked(state, edit, masks, words)


def _largest(state: State, paths: list[Path], edit: Fields) -> dict[Path, Any]:
    """Where the largest of all these leaves stand; None for all of them if one of them is not known."""
    if not all(state.leaves[path].known for path in paths):
        return dict.fromkeys(paths)
    every = [_sizes(state.leaves[path].value).reshape(-1) for path in paths]
    flat = np.concatenate(every) if every else np.zeros(0)
    order = np.argsort(-flat, kind="stable")
    chosen = np.zeros(flat.size, bool)
    chosen[order[: flat.size - round(edit["sparsity"] * flat.size)]] = True
    found, start = {}, 0
    for path, part in zip(paths, every, strict=True):
        found[path] = chosen[start : start + part.size].reshape(state.leaves[path].shape)
        start += part.size
    return found


def _largest_of_groups(leaf: Leaf, edit: Fields) -> Any:
    count, size = map(int, edit["pattern"].split(":"))
    (axis,) = _axes(edit["axis"], len(leaf.shape))
    if leaf.shape[axis] % size:
        raise Refused(2, "no whole groups")
    if not leaf.known:
        return None
    moved = np.moveaxis(_sizes(leaf.value), axis, -1)
    groups = moved.reshape(-1, size)
    order = np.argsort(-groups, axis=-1, kind="stable")
    chosen = np.zeros(groups.shape, bool)
    np.put_along_axis(chosen, order[:, :count], True, -1)
    return np.moveaxis(chosen.reshape(moved.shape), -1, axis)


def _masked(state: State, edit: Fields, masks: dict[Path, Any], words: Words) -> None:
    """Zeros where a mask says so, in the leaves and in what follows them; a mask of None is not known."""
    before = state.copy()
    for path, chosen in masks.items():
        value = np.asarray(state.leaves[path].value)
        if chosen is None:
            put(state, path, value, known=False)
        else:
            put(state, path, np.where(chosen, value, np.zeros((), value.dtype)))
    twins.follow_mask(state, before, edit, masks, words)


OPERATIONS: dict[str, Callable[[State, Fields, World, Words], None]] = {
    "rescale": with_integers(rescale),
    "normalize": with_integers(normalize),
    "replace": replace_values,
    "reinit": reinit,
    "set": set_number,
    "cast": cast,
    "average": with_integers(average),
    "add-scaled": add_scaled,
    **dict.fromkeys(FORMULAS, merge),
    **dict.fromkeys(("merge-lora", "unmerge-lora"), merge_lora),
    **dict.fromkeys(("swa", "ema"), over_steps),
    "clip": with_integers(clip),
    "noise": perturb,
    "shrink-and-perturb": perturb,
    "map": map_halved,
    "prune": prune,
    "mask": mask,
}
