"""One drawer for every operation: an edit that makes sense for the tree as it stands, or nearly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from tests.random_plans import lora
from tests.random_plans.model import Leaf, Path, Refused, State, printed, spelled
from tests.random_plans.patterns import select
from tests.random_plans.world import World

Draw = Callable[[Any], Any]
Drawer = Callable[[Draw, State, World], dict[str, Any]]

_SOMETIMES = st.sampled_from([False, False, False, True])
_SELDOM = st.sampled_from([False] * 11 + [True])
_FACTORS = (0.5, 2.0, 0.1, -1.0, 3.0, 10.0, -0.25, 1e-3, 0.0, 1.0)
_POLICIES = ("keep", "transform", "reset", "warm")


def _escaped(text: str) -> str:
    return "".join(f"[{c}]" if c in "*?[{}" else c for c in text)


def _is_number(leaf: Leaf) -> bool:
    return leaf.is_floating or leaf.is_complex


def _some_leaf(draw: Draw, state: State, wanted: Callable[[Leaf], bool]) -> Path:
    """A leaf that the operation applies to, those of the params first; seldom any leaf."""
    fits = [path for path, leaf in state.leaves.items() if wanted(leaf)]
    if not fits or draw(_SELDOM):
        fits = list(state.leaves)
    own = [path for path in fits if path[: len(state.root)] == state.root]
    if own and draw(st.sampled_from([True, True, False])):
        fits = own
    return draw(st.sampled_from(fits))


def _pattern(draw: Draw, state: State, path: Path) -> str:
    """A pattern that names the leaf, and perhaps others."""
    depth = draw(st.integers(1, len(path))) if path else 0
    node = draw(st.sampled_from([path, path[:depth]]))
    keys = [_escaped(str(key)) for key in node]
    shape = draw(
        st.sampled_from(
            [
                "literal",
                "literal",
                "star",
                "deep",
                "below",
                "question",
                "choice",
                "regex",
                "spelled",
            ]
        )
    )
    if shape == "spelled" and "/" in "".join(map(str, node)):
        return spelled(node)
    if shape == "star" and len(keys) > 1:
        keys[draw(st.integers(1, len(keys) - 1))] = "*"
    elif shape == "deep" and len(keys) > 1:
        keys[draw(st.integers(0, len(keys) - 2))] = "**"
    elif shape == "below":
        keys.append("**")
    elif shape == "question" and keys[-1][-1] not in "]}":
        keys[-1] = keys[-1][:-1] + "?"
    elif shape == "choice" and not set(keys[-1]) & set("[]{},/"):
        keys[-1] = f"{{{keys[-1]},kernel}}"
    elif shape == "regex":
        head = re.escape("/".join(map(str, path[:-1])))
        return f"re:{head}{'/' if head else ''}.*"
    return "/".join(keys)


def _named(
    draw: Draw, state: State, wanted: Callable[[Leaf], bool], *, empties: bool = False
) -> dict[str, Any]:
    """``at`` and the conditions that every edit may have."""
    leaf = _some_leaf(draw, state, wanted)
    edit: dict[str, Any] = {"at": _pattern(draw, state, leaf)}
    if draw(_SELDOM):
        edit["at"] = [edit["at"], _pattern(draw, state, _some_leaf(draw, state, wanted))]
    if draw(_SOMETIMES):
        edit["where_dtype"] = draw(st.sampled_from(["floating", "floating", "float*", "int*"]))
    if draw(_SELDOM):
        edit["except"] = _pattern(draw, state, _some_leaf(draw, state, wanted))
    if draw(_SELDOM):
        edit["where_ndim"] = draw(st.integers(0, 3))
    if draw(_SELDOM):
        edit["optional"] = True
    if draw(_SELDOM):
        edit["twins"] = "named"
    if draw(_SELDOM):
        edit["note"] = "as drawn"
    if draw(_SOMETIMES):
        try:
            found = select(state, edit, skips_empties=not empties, names_twins=True)
        except Refused:
            return edit
        counted = [path for path in found if not state.leaves[path].is_empty]
        edit["expect"] = len(counted) + draw(_SELDOM)
    return edit


def _with_policy(draw: Draw, edit: dict[str, Any]) -> dict[str, Any]:
    if draw(_SOMETIMES):
        edit["optimizer"] = draw(st.sampled_from(_POLICIES))
    return edit


def _numbers(draw: Draw, state: State) -> dict[str, Any]:
    """What an edit by arithmetic names: floating leaves, or integers, too."""
    if not draw(_SOMETIMES):
        return _named(draw, state, _is_number)
    edit = _named(draw, state, lambda leaf: _is_number(leaf) or leaf.is_integer)
    return edit if "where_dtype" in edit else {**edit, "integers": True}


# --- values ------------------------------------------------------------------------------------------------------


def _rescale(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _numbers(draw, state))
    if draw(_SOMETIMES):
        shape = state.leaves[_some_leaf(draw, state, _is_number)].shape
        shape = shape[draw(st.integers(0, len(shape))) :]
        by = world.array_file("float32", shape, draw(st.integers(0, 3)), is_zip=draw(st.booleans()))
        return {**edit, "by": by}
    return {**edit, "by": draw(st.sampled_from(_FACTORS))}


def _normalize(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _numbers(draw, state))
    edit["norm"] = draw(st.sampled_from(["l2", "l1", "max", "rms", "spectral"]))
    if draw(_SOMETIMES):
        edit["to"] = draw(st.sampled_from([2.0, 0.5, 10.0]))
    if draw(_SOMETIMES):
        edit["axis"] = draw(st.sampled_from([0, -1, [0, 1], [-1, 0], 1]))
    if draw(st.booleans()):
        edit["on_zero"] = "keep"
    return edit


def _replace(draw: Draw, state: State, world: World) -> dict[str, Any]:
    how = draw(st.sampled_from(["number", "donor", "file", "elsewhere"]))
    if how == "number":
        edit = _named(draw, state, lambda leaf: _is_number(leaf) or leaf.is_integer)
        number = draw(st.sampled_from([0, 1, 0.5, -2, 7, 1e6]))
        return _with_policy(draw, {**edit, "with": number})
    edit = _with_policy(draw, _named(draw, state, lambda leaf: bool(leaf.dtype)))
    if draw(_SOMETIMES):
        edit["cast"] = True
    if how == "file":
        leaf = state.leaves[_some_leaf(draw, state, lambda leaf: bool(leaf.dtype))]
        file = world.array_file(
            "float32", leaf.shape, draw(st.integers(0, 3)), is_zip=draw(st.booleans())
        )
        return {**edit, "with": file}
    edit["with"] = world.donor(draw(st.integers(0, 1)))
    if how == "elsewhere":
        place = draw(st.sampled_from(list(state.leaves)))
        path = draw(st.sampled_from(list(world.stored)))
        for key in ("except", "expect", "where_dtype", "where_ndim"):
            edit.pop(key, None)
        depth = draw(st.integers(0, min(len(place), len(path)) - 1))
        ends = (place[: len(place) - depth], path[: len(path) - depth])
        edit |= {"at": _escaped(printed(ends[0])), "from": printed(ends[1])}
    return edit


def _reinit(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _named(draw, state, _is_number))
    init = draw(st.sampled_from(["zeros", "ones", "constant", "normal", "uniform", "lecun_normal"]))
    edit["init"] = init
    if init == "constant":
        edit["value"] = draw(st.sampled_from([0.25, -1.5]))
    elif draw(_SOMETIMES):
        edit["seed"] = draw(st.integers(0, 5))
    if "twins" not in edit and draw(_SOMETIMES):
        edit["shape"] = draw(st.sampled_from(["..., 3", ["*", 2], [4, 3], "2, ...", 5]))
    return edit


def _average(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _numbers(draw, state))
    if draw(_SOMETIMES):
        edit = {key: value for key, value in edit.items() if key == "optimizer"}
    members = [world.donor(n) for n in range(draw(st.integers(1, 2)))]
    edit["with"] = members if len(members) > 1 else members[0]
    if draw(st.booleans()):
        weights = st.sampled_from([1, 3, 0.5, 2])
        edit["weights"] = [draw(weights) for _ in range(1 + len(members))]
        if draw(_SELDOM):
            edit["weights"][0] = -0.25
    return edit


def _add_scaled(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _named(draw, state, _is_number))
    edit["scale"] = draw(st.sampled_from([1.0, 0.5, -0.25]))
    if draw(_SOMETIMES):
        return {**edit, "with": draw(st.sampled_from([1, -0.5]))}
    if draw(st.booleans()):
        return {**edit, "with": world.donor(draw(st.integers(0, 1)))}
    path = draw(st.sampled_from([path for path in state.leaves if path] or [("params",)]))
    return {
        **edit,
        "at": _escaped(printed(path)),
        "from": printed(_some_leaf(draw, state, _is_number)),
    }


def _members(draw: Draw, state: State, world: World, least: int = 1, most: int = 2) -> Any:
    """An edit of some leaves with their like in other checkpoints."""
    edit = _with_policy(draw, _named(draw, state, _is_number))
    members = [world.donor(n) for n in range(draw(st.integers(least, most)))]
    return {**edit, "with": members if len(members) > 1 else members[0]}


def _way(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = {**_members(draw, state, world, most=1), "t": draw(st.sampled_from([0.3, 0, 1, -0.5]))}
    if draw(st.booleans()):
        edit["method"] = draw(st.sampled_from(["slerp", "nuslerp"]))
    return edit


def _task_arithmetic(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _members(draw, state, world)
    edit["scale"] = draw(st.sampled_from([1.0, 0.4, -1.0]))
    if draw(_SOMETIMES):
        edit["weights"] = [draw(st.sampled_from([1, 0.5, -0.25])) for _ in _listed(edit["with"])]
    return edit


def _thinned(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _members(draw, state, world)
    edit["density"] = draw(st.sampled_from([0.2, 0.5, 1.0]))
    if draw(_SOMETIMES):
        edit["normalize"] = False
    return edit


def _electing(draw: Draw, state: State, world: World) -> dict[str, Any]:
    consensus = draw(st.sampled_from(["linear", "ties"]))
    return {**_thinned(draw, state, world), "consensus": consensus}


def _model_stock(draw: Draw, state: State, world: World) -> dict[str, Any]:
    return dict(_members(draw, state, world, least=2))


def _over_steps(draw: Draw, state: State, world: World) -> dict[str, Any]:
    """What is no run of several steps is refused."""
    return {**_named(draw, state, _is_number), "steps": "1..3"}


def _ema(draw: Draw, state: State, world: World) -> dict[str, Any]:
    return {**_over_steps(draw, state, world), "decay": 0.5}


def _karcher(draw: Draw, state: State, world: World) -> dict[str, Any]:
    return dict(_members(draw, state, world))


def _listed(named: Any) -> list[str]:
    return [named] if isinstance(named, str) else list(named)


def _clip(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _numbers(draw, state))
    if draw(st.booleans()):
        edit["norm"] = draw(st.sampled_from([1.0, 0.125, 1000.0]))
        if draw(_SOMETIMES):
            edit["axis"] = draw(st.sampled_from([0, -1, [0, 1]]))
        return edit
    bounds = {
        "min": draw(st.sampled_from([-1, -0.1, 0])),
        "max": draw(st.sampled_from([0, 0.25, 2])),
    }
    return {
        **edit,
        **draw(st.sampled_from([bounds, {"min": bounds["min"]}, {"max": bounds["max"]}])),
    }


def _noise(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _named(draw, state, lambda leaf: leaf.is_floating))
    if draw(st.booleans()):
        return {**edit, "std": 0.5}
    return {**edit, "std": 0.5, "relative": True, "on_zero": "keep", "seed": 3}


def _shrink_and_perturb(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _named(draw, state, lambda leaf: leaf.is_floating))
    added = draw(st.sampled_from([{"std": 0.5}, {"init": "normal", "perturb": 8.0}]))
    return {**edit, "shrink": draw(st.sampled_from([0.5, 1.0])), **added}


def _map(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _named(draw, state, _is_number))
    if draw(st.booleans()):
        edit["effect"] = draw(st.sampled_from(["shifts", "takes"]))
    return {**edit, "with": world.function("halved")}


def _prune(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _named(draw, state, _is_number))
    if draw(_SOMETIMES):
        pattern = draw(st.sampled_from(["1:2", "2:4", "2:3"]))
        return {**edit, "pattern": pattern, "axis": draw(st.sampled_from([0, -1, 1]))}
    edit["sparsity"] = draw(st.sampled_from([0.5, 0.25, 0.9]))
    if draw(st.booleans()):
        edit["over"] = "all"
    return edit


def _mask(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _named(draw, state, _is_number))
    shape = state.leaves[_some_leaf(draw, state, _is_number)].shape
    shape = shape[draw(st.integers(0, len(shape))) :]
    seed, is_zip = draw(st.integers(0, 3)), draw(st.booleans())
    return {**edit, "by": world.array_file("bool", shape, seed, is_zip=is_zip)}


def _cast(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit: dict[str, Any] = {}
    if not draw(_SOMETIMES):
        edit = _with_policy(draw, _named(draw, state, lambda leaf: leaf.is_floating))
    dtypes = ["bfloat16", "float32", "float16", "float64", "float8_e4m3fn", "float8_e5m2", "int16"]
    edit["to"] = draw(st.sampled_from(dtypes if not world.layout.is_file else dtypes[:4]))
    if draw(_SOMETIMES):
        edit["underflow"] = "keep"
    return edit


def _set(draw: Draw, state: State, world: World) -> dict[str, Any]:
    def wanted(leaf: Leaf) -> bool:
        return bool(leaf.dtype) and leaf.shape in ((), (1,)) and not leaf.is_complex

    edit = _named(draw, state, wanted)
    return {**edit, "to": draw(st.sampled_from([0, 1, 100, 0.5, True, -1]))}


def _reset_optimizer(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit: dict[str, Any] = {}
    if draw(st.booleans()):
        slots = [slot for slot in state.slots.values() if slot.path in state.leaves]
        paths = [p for slot in slots for p in (slot.path, slot.param)] or list(state.leaves)
        edit["at"] = _pattern(draw, state, draw(st.sampled_from(paths)))
    if draw(st.booleans()):
        edit["clocks"] = True
    return edit


# --- shapes ------------------------------------------------------------------------------------------------------


def _array(
    draw: Draw, state: State, *, whole: bool = False
) -> tuple[dict[str, Any], tuple[int, ...]]:
    """A leaf that is no slot, and its shape; ``whole``: one whose second moment is not taken apart."""
    apart = {slot.param for slot in state.slots.values() if slot.relation in ("factored", "one")}

    def wanted(leaf: Leaf) -> bool:
        return bool(leaf.dtype) and not leaf.is_python

    path = _some_leaf(draw, state, wanted)
    if path in state.slots or (whole and path in apart):
        fits = [
            p
            for p, leaf in state.leaves.items()
            if wanted(leaf) and p not in state.slots and not (whole and p in apart)
        ]
        path = draw(st.sampled_from(fits)) if fits else path
    edit = _with_policy(draw, {"at": "/".join(_escaped(str(key)) for key in path)})
    return edit, state.leaves[path].shape


def _transpose(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state)
    axes = draw(st.permutations(range(len(shape))))
    if draw(_SELDOM):
        axes = [*axes, 0]
    return {**edit, "axes": axes} if axes and draw(st.booleans()) else edit


def _reshape(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    count = math.prod(shape)
    parts = [n for n in range(1, count + 1) if count % n == 0]
    first = draw(st.sampled_from(parts or [1]))
    choices = [[first, -1], [-1], [*shape, 1], [first, count // first if count else 0]]
    if draw(_SELDOM):
        choices = [[count + 1]]
    if len(shape) > 1 and draw(st.booleans()):
        start = draw(st.integers(0, len(shape) - 1))
        axes = [*range(start, draw(st.integers(start, len(shape) - 1)) + 1)]
        choices = [[-1], [-1, 1], [1, -1], [2, -1]] if 0 not in shape else [[0]]
        edit = {**edit, "axis": axes if len(axes) > 1 else axes[0]}
    return {**edit, "shape": draw(st.sampled_from(choices))}


def _squeeze(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    ones = [n for n, size in enumerate(shape) if size == 1]
    return {**edit, "axis": draw(st.sampled_from(ones))} if ones and draw(st.booleans()) else edit


def _expand(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    return {**edit, "axis": draw(st.sampled_from([0, -1, len(shape), len(shape) // 2]))}


def _permute(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    axis = draw(st.integers(0, max(len(shape) - 1, 0)))
    size = shape[axis] if shape else 1
    index = draw(st.permutations(range(size)))
    return {**edit, "axis": axis, "index": index[:-1] if draw(_SELDOM) and size > 1 else index}


def _slice(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    parts = st.sampled_from([":", "0:2", "1:", "::2", "::-1", "-2:"])
    some = [draw(parts) for _ in range(draw(st.integers(1, max(len(shape), 1))))]
    if draw(_SELDOM):
        some.insert(0, "...")
    return {**edit, "slices": ", ".join(some)}


def _pad(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    edit["axis"] = draw(st.integers(0, max(len(shape) - 1, 0)))
    edit["after"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        edit["before"] = draw(st.integers(0, 2))
    if draw(_SOMETIMES):
        edit["value"] = draw(st.sampled_from([1.0, 0.5]))
    return edit


def _resize(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    axis = draw(st.integers(0, max(len(shape) - 1, 0)))
    old = shape[axis] if shape else 1
    edit["size"] = draw(st.integers(1, old + 4))
    how = {"axis": axis}
    if old and shape.count(old) == 1 and draw(st.booleans()):
        how = {"old_size": old}
    fills = [{}, {"fill": "repeat"}, {"fill": "zeros"}, {"fill": "constant", "value": 0.5}]
    return {**edit, **how, **draw(st.sampled_from(fills))}


def _repeat(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    edit |= {"axis": draw(st.integers(-1, max(len(shape) - 1, 0))), "times": 2}
    more = st.sampled_from([{}, {"order": "tiled"}, {"new_axis": True}, {"order": "interleaved"}])
    return edit | draw(more)


def _interpolate(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    axis = draw(st.integers(0, max(len(shape) - 1, 0)))
    return {**edit, "axis": axis, "size": draw(st.integers(1, 9))}


# --- groups ------------------------------------------------------------------------------------------------------


def _stack(draw: Draw, state: State, world: World) -> dict[str, Any]:
    """Leaves that are alike, one by one; seldom others."""
    groups: dict[Any, list[Path]] = {}
    for path, leaf in state.leaves.items():
        if path and leaf.dtype and not leaf.is_python and path not in _apart_or_slots(state):
            kind = None if draw(_SELDOM) else (leaf.dtype, leaf.shape, type(leaf.value))
            groups.setdefault(kind, []).append(path)
    many = [paths for paths in groups.values() if len(paths) > 1] or [list(state.leaves)[:2]]
    paths = draw(st.permutations(draw(st.sampled_from(many))))[: draw(st.integers(2, 4))]
    at = [_escaped(spelled(path)) for path in paths]
    axis = draw(st.integers(-1, len(state.leaves[paths[0]].shape)))
    edit = {"at": at, "to": _place(draw, state, paths[0]), "axis": axis}
    return _with_policy(draw, edit)


def _unstack(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    axis = draw(st.integers(-1, max(len(shape) - 1, 0)))
    count = shape[axis] if shape else 1
    count += draw(_SELDOM)
    places = [f"params/part_{{0..{count - 1}}}", f"new/{{1..{count}}}/w", "params/part_{0..}"]
    if count > 1:
        places.append([f"params/p_{n}" for n in range(count)])
    return {**edit, "axis": axis, "to": draw(st.sampled_from(places))}


def _split(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit, shape = _array(draw, state, whole=True)
    axis = draw(st.integers(-1, max(len(shape) - 1, 0)))
    size = shape[axis] if shape else 1
    count = draw(st.integers(1, min(max(size, 1), 3)))
    edit |= {"axis": axis, "to": [f"params/part_{n}" for n in range(count)]}
    if draw(st.booleans()) and size >= count:
        cuts = sorted(draw(st.permutations(range(1, size)))[: count - 1])
        edit["sizes"] = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    if draw(_SOMETIMES):
        edit["groups"] = draw(st.integers(1, 2))
    return edit


def _concat(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _stack(draw, state, world)
    return {**edit, "groups": draw(st.integers(1, 2))} if draw(_SOMETIMES) else edit


def _apart_or_slots(state: State) -> set[Path]:
    apart = {slot.param for slot in state.slots.values() if slot.relation in ("factored", "one")}
    return apart | set(state.slots)


# --- places ------------------------------------------------------------------------------------------------------


def _place(draw: Draw, state: State, node: Path) -> str:
    """Where something may go: beside where it stands, deeper, to the end of a list, onto something else."""
    how = draw(st.sampled_from(["beside", "beside", "deeper", "end", "elsewhere", "onto", "slash"]))
    parent = printed(node[:-1])
    head = f"{parent}/" if parent else ""
    name = draw(st.sampled_from(["head", "new_1", "7", "kernel"]))
    if how == "deeper":
        return f"{head}new/{name}"
    if how == "end":
        lists = [n for n in state.nodes() if state.is_list(n)]
        if lists:
            chosen = draw(st.sampled_from(sorted(lists, key=printed)))
            size = len({p[len(chosen)] for p in state.leaves if p[: len(chosen)] == chosen})
            return f"{printed(chosen)}/{size - draw(st.integers(0, 1))}"
    if how == "elsewhere":
        return f"aside/{name}"
    if how == "onto":
        return printed(draw(st.sampled_from(list(state.leaves))))
    if how == "slash":
        return "/".join(s for s in (spelled(node[:-1]), f"x%2F{name}") if s)
    return f"{head}{name}"


def _some_node(draw: Draw, state: State) -> Path:
    path = _some_leaf(draw, state, lambda leaf: True)
    return path[: draw(st.integers(1, len(path)))] if path else path


def _conditions(draw: Draw, edit: dict[str, Any]) -> dict[str, Any]:
    if draw(_SELDOM):
        edit["where_dtype"] = "floating"
    if draw(_SELDOM):
        edit["optional"] = True
    if draw(_SELDOM):
        edit["twins"] = "named"
    return edit


def _rename(draw: Draw, state: State, world: World) -> dict[str, Any]:
    node = _some_node(draw, state)
    how = draw(st.sampled_from(["one", "one", "wild", "swap"]))
    if how == "swap":
        other = _some_node(draw, state)
        one, two = _escaped(printed(node)), _escaped(printed(other))
        return {"moves": {one: printed(other), two: printed(node)}}
    return _conditions(draw, _to(draw, state, node, is_wild=how == "wild"))


def _to(draw: Draw, state: State, node: Path, *, is_wild: bool) -> dict[str, Any]:
    keys = [_escaped(str(key)) for key in node]
    if not is_wild or len(node) < 2 or any("/" in str(key) for key in node):
        return {"at": "/".join(keys), "to": _place(draw, state, node)}
    at = draw(st.integers(0, len(node) - 1))
    to = [str(key) for key in node]
    keys[at], to[at] = "*", r"\1"
    shape = draw(st.sampled_from(["last", "first", "glued"]))
    if shape == "glued":
        to[at] = r"new_\1"
    elif shape == "last" and at < len(to) - 1:
        to[-1] = "head"
    else:
        to.insert(at, "new")
    return {"at": "/".join(keys), "to": "/".join(to)}


def _merge(draw: Draw, state: State, world: World) -> dict[str, Any]:
    """With a checkpoint that has what the source had, under other values."""
    node = draw(st.sampled_from([state.root, (), _some_node(draw, state)]))
    edit: dict[str, Any] = {"with": world.donor(draw(st.integers(0, 1)))}
    if node:
        edit["at"] = printed(node)
    if not draw(_SELDOM):
        edit["both"] = draw(st.sampled_from(["ours", "ours", "theirs"]))
    return edit


def _intersect(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = {"with": world.donor(draw(st.integers(0, 1)))}
    if draw(st.booleans()):
        edit["at"] = _escaped(printed(_some_node(draw, state)))
    return edit


def _flatten(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = {"at": _escaped(printed(_some_node(draw, state)))}
    return {**edit, "separator": draw(st.sampled_from([".", "/", "_", "~"]))}


def _unflatten(draw: Draw, state: State, world: World) -> dict[str, Any]:
    """Mostly at a key that there is."""
    marks = [".", "/", "_"]
    nodes = sorted(
        {
            (printed(path[:n]), mark)
            for path in state.leaves
            for n in range(1, len(path))
            for mark in marks
            if mark in str(path[n])
        }
    )
    if not nodes or draw(_SELDOM):
        return _flatten(draw, state, world)
    node, separator = draw(st.sampled_from(nodes))
    return {"at": _escaped(node), "separator": separator}


def _to_dict(draw: Draw, state: State, world: World) -> dict[str, Any]:
    """Mostly a list that there is, or a node above one."""
    lists = sorted({printed(p[:n]) for p in state.leaves for n in range(1, len(p)) if p[n] == 0})
    if not lists or draw(_SELDOM):
        return {"at": _escaped(printed(_some_node(draw, state)))}
    edit = {"at": _escaped(draw(st.sampled_from(lists)))}
    return {**edit, "empties": "drop"} if draw(_SOMETIMES) else edit


def _to_list(draw: Draw, state: State, world: World) -> dict[str, Any]:
    """Mostly a dict whose keys are numbers."""
    nodes = sorted(
        {
            printed(path[:n])
            for path in state.leaves
            for n in range(1, len(path))
            if isinstance(path[n], str) and path[n].isdecimal()
        }
    )
    if draw(_SELDOM if nodes else _SOMETIMES):
        return {
            "at": printed(_some_node(draw, state)),
            "with": world.donor(draw(st.integers(0, 1))),
        }
    if not nodes or draw(_SELDOM):
        return {"at": _escaped(printed(_some_node(draw, state)))}
    edit = {"at": _escaped(draw(st.sampled_from(nodes)))}
    return {**edit, "length": draw(st.integers(1, 4))} if draw(_SOMETIMES) else edit


def _copy(draw: Draw, state: State, world: World) -> dict[str, Any]:
    return _conditions(draw, _to(draw, state, _some_node(draw, state), is_wild=draw(_SOMETIMES)))


def _add(draw: Draw, state: State, world: World) -> dict[str, Any]:
    """Like something that stands there, mostly a param or some of them."""
    node = _some_node(draw, state)
    edit: dict[str, Any] = {"at": _place(draw, state, node), "like": printed(node)}
    if draw(st.booleans()):
        edit["with"] = draw(st.sampled_from([0, 1, 0.5, 2]))
    else:
        edit["init"] = draw(st.sampled_from(["zeros", "ones"]))
    if draw(_SELDOM):
        edit["shape"] = draw(st.sampled_from(["..., 3", ["*", 2], [4, 3]]))
    if draw(_SOMETIMES):
        edit["optimizer"] = draw(st.sampled_from(["reset", "warm", "keep"]))
    return edit


def _delete(draw: Draw, state: State, world: World) -> dict[str, Any]:
    return _named(draw, state, lambda leaf: True, empties=True)


def _keep(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _named(draw, state, lambda leaf: True, empties=True)
    if draw(st.booleans()):
        others = [
            _escaped(str(key))
            for key in sorted({path[0] for path in state.leaves if path}, key=str)
        ]
        at = edit["at"] if isinstance(edit["at"], list) else [edit["at"]]
        edit["at"] = list(dict.fromkeys([*others[:-1], *at]))
        edit.pop("expect", None)
    return edit


def _extract_item(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit: dict[str, Any] = {"at": _escaped(printed(_some_node(draw, state)))}
    if world.has_steps or draw(_SELDOM):
        if draw(st.booleans()):
            edit["as"] = draw(st.sampled_from(["weights", "more", "no/name"]))
        if draw(st.booleans()):
            edit["keep"] = True
    return edit


def _insert_item(draw: Draw, state: State, world: World) -> dict[str, Any]:
    if len(state.items) > 1 and draw(st.booleans()):
        item = draw(st.sampled_from(state.items))
        other = draw(st.sampled_from(state.items))
        return {"at": f"{other}/{draw(st.sampled_from(['back', 'params', 'x/y']))}", "from": item}
    donor = world.donor(draw(st.integers(0, 1)))
    path = draw(st.sampled_from(list(world.stored)))
    node = path[: draw(st.integers(0, len(path)))]
    here = node if draw(st.booleans()) and node else None
    at = printed(here) if here else _place(draw, state, _some_node(draw, state))
    edit: dict[str, Any] = {"at": at, "with": donor}
    if node:
        edit["from"] = printed(node)
    return edit


def _merge_lora(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _with_policy(draw, _named(draw, state, _is_number))
    for key in ("except", "expect", "where_dtype", "where_ndim"):
        edit.pop(key, None)
    path = _some_leaf(draw, state, lambda leaf: _is_number(leaf) and len(leaf.shape) == 2)
    kernel = state.leaves[path].shape
    kernel = kernel if len(kernel) == 2 else (3, 4)
    layout = draw(st.sampled_from(list(lora.LAYOUTS)))
    sizes = lora.shapes(layout, kernel, draw(st.integers(1, 3)))
    edit |= {"at": _escaped(printed(path)), "a": "a", "b": "b", "layout": layout}
    edit["with"] = lora.write(world.folder, sizes, draw(st.integers(0, 3)))
    if draw(_SELDOM):
        edit["layout"] = draw(st.sampled_from(list(lora.LAYOUTS)))
    if draw(st.booleans()):
        return {**edit, "scale": draw(st.sampled_from([1.0, 0.5, -2.0]))}
    return {**edit, "alpha": 6, "rslora": draw(st.booleans())}


def _extract_lora(draw: Draw, state: State, world: World) -> dict[str, Any]:
    path = _some_leaf(draw, state, lambda leaf: leaf.is_floating and len(leaf.shape) == 2)
    edit: dict[str, Any] = {"at": _escaped(printed(path)), "layout": "flax"}
    beside = printed(path[:-1])
    edit |= {name: f"{beside}/low_{name}".strip("/") for name in "ab"}
    edit |= {"with": world.donor(draw(st.integers(0, 1))), "rank": draw(st.integers(1, 3))}
    if draw(_SOMETIMES):
        edit["split"] = draw(st.sampled_from(["even", "a", "b"]))
    if draw(_SELDOM):
        edit["optimizer"] = draw(st.sampled_from(["reset", "warm", "keep"]))
    return edit


# --- rules -------------------------------------------------------------------------------------------------------


def _assert(draw: Draw, state: State, world: World) -> dict[str, Any]:
    edit = _named(draw, state, lambda leaf: bool(leaf.dtype), empties=True)
    edit.pop("optional", None)
    if draw(_SOMETIMES):
        edit = {}
    leaf = state.leaves[_some_leaf(draw, state, lambda leaf: bool(leaf.dtype))]
    rule = draw(st.sampled_from(["finite", "norm", "norm", "count", "dtype", "shape"]))
    if rule == "finite":
        return {**edit, "finite": True}
    if rule == "norm":
        return {**edit, "norm": draw(st.sampled_from(["..1e6", "..1e6", "..3", "..0.1"]))}
    if rule == "count":
        return {**edit, "count": draw(st.integers(0, 4))}
    if rule == "dtype" or not leaf.dtype:
        return {**edit, "dtype": leaf.dtype or "float32"}
    return {**edit, "shape": list(leaf.shape)}


DRAWERS: dict[str, Drawer] = {
    "rescale": _rescale,
    "normalize": _normalize,
    "replace": _replace,
    "reinit": _reinit,
    "average": _average,
    "add-scaled": _add_scaled,
    "swa": _over_steps,
    "ema": _ema,
    "interpolate": _way,
    "task-arithmetic": _task_arithmetic,
    "ties": _thinned,
    "dare": _electing,
    "breadcrumbs": _electing,
    "model-stock": _model_stock,
    "karcher": _karcher,
    "merge-lora": _merge_lora,
    "unmerge-lora": _merge_lora,
    "extract-lora": _extract_lora,
    "clip": _clip,
    "noise": _noise,
    "shrink-and-perturb": _shrink_and_perturb,
    "map": _map,
    "prune": _prune,
    "mask": _mask,
    "cast": _cast,
    "set": _set,
    "reset-optimizer": _reset_optimizer,
    "transpose": _transpose,
    "reshape": _reshape,
    "squeeze": _squeeze,
    "expand": _expand,
    "permute": _permute,
    "slice": _slice,
    "pad": _pad,
    "resize": _resize,
    "repeat": _repeat,
    "interpolate-positions": _interpolate,
    "stack": _stack,
    "unstack": _unstack,
    "add": _add,
    "merge": _merge,
    "intersect": _intersect,
    "split": _split,
    "concat": _concat,
    "flatten": _flatten,
    "unflatten": _unflatten,
    "to-dict": _to_dict,
    "to-list": _to_list,
    "rename": _rename,
    "copy": _copy,
    "delete": _delete,
    "keep": _keep,
    "extract-item": _extract_item,
    "insert-item": _insert_item,
    "assert": _assert,
}
"""Every operation of the table must be here: a new one is tested by being listed."""
