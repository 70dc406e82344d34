"""What the reference works on: a checkpoint as a flat mapping of typed paths to NumPy values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np

Path = tuple[str | int, ...]
"""Dict keys are text, indices of lists whole numbers."""


def printed(path: Path) -> str:
    return "/".join(map(str, path))


def spelled(path: Path) -> str:
    """The path with slashes inside keys told apart."""
    return "/".join(str(key).replace("%", "%25").replace("/", "%2F") for key in path)


def is_below(path: Path, node: Path) -> bool:
    """True for the node itself, too."""
    return path[: len(node)] == node


@dataclass(frozen=True)
class Empty:
    """None, ``{}``, ``[]`` or ``()``: something without values."""

    kind: str


class Refused(Exception):
    """The contract says that the plan is refused with this exit code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(f"exit {code}: {why}")
        self.code = code


@dataclass(frozen=True)
class Leaf:
    """A value, and how sure it is.

    ``home`` is the stored leaf that it continues: the name of a source ("" is the one that is edited) and a path.
    ``ulps`` of ``narrowest`` (the least exact dtype that it went through) is by how much the value may be off; what is
    not ``known`` was drawn at random: its shape and dtype are all that can be said.
    """

    value: Any
    home: tuple[str, Path] | None = None
    ulps: float = 0
    narrowest: str = ""
    known: bool = True
    joined: frozenset[tuple[str, Path]] = frozenset()
    """The stored leaves that it continues, where they are several."""

    @property
    def is_empty(self) -> bool:
        return isinstance(self.value, Empty)

    @property
    def is_empty_dict(self) -> bool:
        return self.is_empty and self.value.kind == "{}"

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str)

    @property
    def is_python(self) -> bool:
        return isinstance(self.value, bool | int | float) and not isinstance(self.value, np.generic)

    @property
    def dtype(self) -> str:
        """The dtype in words; '' for text and empties."""
        return "" if self.is_empty or self.is_text else np.asarray(self.value).dtype.name

    @property
    def shape(self) -> tuple[int, ...]:
        return np.shape(self.value) if self.dtype else ()

    @property
    def is_floating(self) -> bool:
        return self.dtype.startswith(("float", "bfloat"))

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith(("int", "uint"))

    @property
    def is_complex(self) -> bool:
        return self.dtype.startswith("complex")

    def with_value(self, value: Any, *, ulps: float = 0, known: bool = True) -> Leaf:
        """The leaf after an edit that rounds by ``ulps``; what was off before stays off."""
        dtype = np.asarray(value).dtype.name
        narrowest = max((name for name in (self.narrowest, dtype) if name), key=precision)
        off = self.ulps + ulps + (1 if self.ulps and ulps == 0 else 0)
        return replace(self, value=value, ulps=off, narrowest=narrowest, known=known)


def precision(dtype: str) -> float:
    """The distance from 1 to the next number; 0 where there is none."""
    part = {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)
    return float(ml_dtypes.finfo(part).eps) if part.startswith(("float", "bfloat")) else 0.0


@dataclass(frozen=True)
class Slot:
    """What is true of a twin, known from the optimizer that made it and not from the disk.

    It stands at ``node / (param without root)``. ``power`` and ``is_even``: how it follows a factor of its param.
    ``relation`` is ``same``, ``factored``, ``one`` (a placeholder) or ``hole`` (nothing; ``param`` is then a node).
    """

    path: Path
    param: Path
    node: Path
    root: Path
    power: int = -1
    is_even: bool = False
    is_second: bool = False
    relation: str = "same"
    fresh: float = 0.0

    @property
    def state(self) -> Path:
        """The state of the optimizer that holds it."""
        return self.node[:-1]

    def place_for(self, param: Path) -> Path:
        """Where the slot stands when its param stands at ``param``, below the root."""
        return (*self.node, *param[len(self.root) :])


@dataclass
class State:
    """The tree at a moment of a plan, and what is true of its optimizer.

    ``clocks``: for each counter the slots' states that it drives. ``optimizer``: the roots of optimizer states.
    ``items``: the names of the trees of a step with several; their names are the first keys. ``may`` are exit codes
    with which the program may refuse, where the contract leaves it to it, with the reason.
    """

    leaves: dict[Path, Leaf]
    slots: dict[Path, Slot] = field(default_factory=dict)
    clocks: dict[Path, Path] = field(default_factory=dict)
    root: Path = ("params",)
    optimizer: tuple[Path, ...] = ()
    items: tuple[str, ...] = ()
    may: dict[int, str] = field(default_factory=dict)
    refused_by_value: str = ""
    restarted: set[Path] = field(default_factory=set)
    has_strangers: bool = False
    """True once leaves were put in, or copied elsewhere: what they are to the optimizer is for a survey to say."""

    def copy(self) -> State:
        return replace(
            self,
            leaves=dict(self.leaves),
            slots=dict(self.slots),
            clocks=dict(self.clocks),
            may=dict(self.may),
            restarted=set(self.restarted),
        )

    def refuse_value(self, why: str) -> None:
        """The plan cannot be carried out with these values; what is wrong on metadata comes first."""
        self.refused_by_value = self.refused_by_value or why

    def holds_optimizer(self, node: Path) -> bool:
        return any(is_below(node, root) for root in self.optimizer)

    def nodes(self) -> set[Path]:
        """Everything above a leaf, the root included."""
        return {path[:n] for path in self.leaves for n in range(len(path))}

    def is_list(self, node: Path) -> bool:
        depth = len(node)
        return any(
            is_below(path, node) and len(path) > depth and isinstance(path[depth], int)
            for path in self.leaves
        )


Words = Callable[[Path], str]
"""What the preview says of the twin at a path after the edit in question: its policy, '' if nothing, and
``refused`` where there is no preview."""

Fields = Mapping[str, Any]
"""An edit as it stands in a plan."""


def flat(tree: Any, path: Path = ()) -> dict[Path, Any]:
    """Leaves of nested dicts and lists by typed path; empties are leaves."""
    if isinstance(tree, dict) and tree:
        children = tree.items()
    elif isinstance(tree, list | tuple) and len(tree):
        children = enumerate(tree)
    else:
        names = {dict: "{}", list: "[]", tuple: "()", type(None): "None"}
        name = names.get(type(tree))
        return {path: Empty(name) if name else tree}
    found: dict[Path, Any] = {}
    for key, child in children:
        found |= flat(child, (*path, key))
    return found
