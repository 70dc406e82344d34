"""Value edits on arrays in memory: what an edit makes of a leaf, or of a slot, computed block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
from ruamel.yaml import YAML

from surgery_cli.compute.host import HostKit
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored, parts
from surgery_cli.draft.kernel import Kernel, Kit
from surgery_cli.draft.recipe import Draft, DraftItems
from surgery_cli.draft.slots import Slot
from surgery_cli.draft.user_function import UserFunction
from surgery_cli.engine import measurements
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.errors import PlanError
from surgery_cli.operations.base import LeafOperation, Operation, ValueOperation
from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.optimizer.follow.transform import Change
from surgery_cli.optimizer.follow.transform import followed as follow
from surgery_cli.planning.reading import plan_from_document
from surgery_cli.resolution import resolve
from surgery_cli.resolution.selection import select
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

KERNEL = LeafPath(("params", "Dense_0", "kernel"))


def spec_of(array: Any, **fields: Any) -> LeafSpec:
    return LeafSpec(
        **{"kind": LeafKind.ARRAY, "shape": array.shape, "dtype": array.dtype.name, **fields}
    )


def path_of(text: str) -> LeafPath:
    return LeafPath(text.split("/")) if text else LeafPath()


class ArraySource:
    """Arrays by printed path, as a source that edits may take leaves from."""

    fingerprint = "array-source"
    step_formats: tuple[str, ...] = ()
    tells_kinds = True

    def __init__(self, arrays: Mapping[str, Any], **fields: Any) -> None:
        self.arrays = {path_of(text): array for text, array in arrays.items()}
        self.tree = TreeSpec({p: spec_of(array, **fields) for p, array in self.arrays.items()})

    def beside(self, name: str) -> None:
        return None

    def read(self, path: LeafPath, window: Any = None) -> Any:
        array = np.asarray(self.arrays[path])
        return array if window is None else array[window]


class ArrayScene:
    """A scene whose sources are given, and in which twins stay as they are."""

    seed = 0

    def __init__(self, **sources: ArraySource) -> None:
        self.sources = {name.replace("__", "."): source for name, source in sources.items()}
        self.source = ArraySource({})
        self.carried_leaves: list[LeafPath] = []
        self.functions: dict[str, Callable[[Any, str], Any]] = {}

    def select(self, edit: Operation, draft: Draft) -> Selection:
        return select(edit, draft)

    def open(self, text: str) -> tuple[str, ArraySource]:
        if text not in self.sources:
            raise PlanError(f"'{text}' is neither a file, a checkpoint nor a source")
        return text, self.sources[text]

    def function(self, text: str) -> UserFunction:
        return UserFunction.of(text, "sha256:0", self.functions[text])

    def policy(self, edit: Operation) -> str | None:
        return None

    def survey_of(self, name: str, *, tell: bool = False) -> OptimizerSurvey:
        return survey(self.sources[name].tree)

    def name(self, leaves: Any) -> None:
        """Nobody counts what the edit is about."""

    def carried(
        self,
        draft: Draft,
        edit: ValueOperation,
        edited: Sequence[LeafPath],
        before: Draft,
        origins: Any = None,
    ) -> Draft:
        self.carried_leaves = list(edited)
        return draft


def scene_of(own: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> ArrayScene:
    """A scene in which several checkpoints meet."""
    sources = {name: ArraySource(arrays) for name, arrays in others.items()}
    scene = ArrayScene(**sources)
    scene.source = ArraySource(own)
    for name, source in {"own": scene.source, **sources}.items():
        known: Any = source
        known.fingerprint = known.address = name
        known.steps, known.step, known.places = {}, None, frozenset({name})
    return scene


def rewritten(edit: Operation, draft: Draft, scene: Any) -> Draft:
    """The draft after an edit, as a run makes it: what its fields say is looked at first."""
    edit.check_values()
    return edit.rewrite(draft, scene)


def merged(
    edit: Operation, members: Sequence[Mapping[str, Any]], *, block: tuple[int, ...] | None = None
) -> dict[str, Any]:
    """Every leaf after a merge of the first of these with the others, which are called a, b, c, …"""
    own, *others = members
    scene = scene_of(own, dict(zip("abcdefgh", others, strict=False)))
    after = rewritten(edit, draft_of(own), scene)
    arrays = {path_of(text): array for text, array in own.items()}
    return {
        text: computed(after.leaves[path_of(text)].recipe, arrays, block=block, scene=scene)
        for text in own
    }


def draft_of(arrays: Mapping[str, Any]) -> Draft:
    return Draft.of(ArraySource(arrays).tree, "tree")


def stored(array: Any, path: LeafPath = KERNEL) -> Stored:
    """A leaf of the source, by its array or its spec."""
    spec = array if isinstance(array, LeafSpec) else spec_of(array)
    return Stored(LeafRef("", path), spec)


def made(
    operation: LeafOperation,
    array: Any,
    path: LeafPath = KERNEL,
    scene: ArrayScene | None = None,
) -> Recipe:
    """What an edit makes of a leaf."""
    operation.check_values()
    return operation.made(path, stored(array, path), scene or ArrayScene())


def edited(
    operation: LeafOperation,
    array: Any,
    *,
    block: tuple[int, ...] | None = None,
    kit: Kit | None = None,
    path: LeafPath = KERNEL,
    scene: ArrayScene | None = None,
) -> Any:
    """The leaf after the edit, which is computed in blocks of this shape."""
    recipe = made(operation, array, path, scene)
    return computed(recipe, {path: array}, block=block, kit=kit, scene=scene)


def rule(
    operation: LeafOperation,
    slot: Slot,
    twin: Any = None,
    param: Any = None,
    *,
    scene: ArrayScene | None = None,
) -> tuple[Change, ...] | None:
    """How a slot follows an edit of its param."""
    leaf = np.ones((3, 4), np.float32)
    after = made(operation, leaf if param is None else param, KERNEL, scene)
    effect = operation.effect_on(after, after.spec)
    return follow(slot, stored(leaf if twin is None else twin, slot.path), effect)


def followed(
    operation: LeafOperation, slot: Slot, twin: Any, param: Any, *, scene: ArrayScene | None = None
) -> Any:
    """A slot after an edit of its param, by factors."""
    (change,) = rule(operation, slot, twin, param, scene=scene) or ()
    return computed(change.recipe, {KERNEL: param, slot.path: twin}, scene=scene)


def computed(
    recipe: Recipe,
    arrays: Mapping[LeafPath, Any],
    *,
    block: tuple[int, ...] | None = None,
    kit: Kit | None = None,
    scene: ArrayScene | None = None,
) -> Any:
    """What a recipe comes to, by blocks."""
    own = ArraySource({})
    own.arrays = dict(arrays)
    sources = {"": own, **(scene.sources if scene else {})}
    shape = recipe.spec.shape

    def grid(part: Made, number: int) -> list[tuple[slice, ...]]:
        leaf = part.inputs[number].spec
        whole = block is None or part.kernel.is_whole or len(leaf.shape) != len(block)
        return list(blocks(leaf.shape, leaf.shape if whole else block))

    evaluation = Evaluation(recipe, sources, kit or HostKit(), block or shape)
    with patch.object(measurements, "measured_windows", grid):
        parts = [(window, evaluation.block(window)) for window in evaluation.windows]
    assert all(values.dtype.name == recipe.spec.dtype for _, values in parts)
    result = np.empty(shape, parts[0][1].dtype)
    for window, values in parts:
        assert values.shape == result[window].shape
        result[window] = values
    return result


def kernels(recipe: Recipe) -> list[Kernel]:
    """The kernels of an expression, inputs before what is made of them."""
    return [part.kernel for part in parts(recipe) if isinstance(part, Made)]


def blocks(shape: tuple[int, ...], block: tuple[int, ...]) -> Iterator[tuple[slice, ...]]:
    """The grid of blocks that covers ``shape``."""
    return product(
        *(
            [slice(start, min(start + step, size)) for start in range(0, size, step)]
            for size, step in zip(shape, block, strict=True)
        )
    )


def drafted_example(
    kind: type[Operation],
    leaf: Any,
    donor: Any = None,
    *,
    first: Callable[[Any], Any] | None = None,
    layers: int = 2,
    **fields: Any,
) -> tuple[Draft, dict[str, ArraySource]]:
    """The draft that an operation's example makes of layers of such leaves under Adam, and the sources it reads.

    ``donor`` are the leaves of other checkpoints, like ``leaf`` if None. A mask keeps where theirs are above zero.
    Before the example, ``first`` is called on every param; ``fields`` are added to it.
    """
    roots = ("params", "opt_state/0/mu", "opt_state/0/nu")
    counts = {"step": np.int32(7), "opt_state/0/count": np.int32(7)}
    names = layer_names(layers)

    def state(array: Any) -> ArraySource:
        return ArraySource({f"{root}/{name}": array for root in roots for name in names} | counts)

    other = leaf if donor is None else donor
    return example_on(kind, state(leaf), state(other), other, first=first, layers=layers, **fields)


def _lora_of(leaf: Any, layers: int) -> dict[str, Any]:
    """A LoRA of rank 1 for each layer; none for leaves that are no kernels."""
    array = np.asarray(leaf)
    if array.ndim < 2:
        return {}
    factors = {"lora_a": array[..., :1], "lora_b": array.reshape(-1, array.shape[-1])[:1]}
    return {f"params/Dense_{n}/{key}": part for n in range(layers) for key, part in factors.items()}


def layer_names(count: int) -> list[str]:
    return [f"Dense_{n}/{key}" for n in range(count) for key in ("bias", "kernel")]


BEFORE = {"to-dict": [{"op": "to-list", "at": "opt_state"}]}
"""What makes of a checkpoint something that an example is about."""


def example_on(
    kind: type[Operation],
    own: Any,
    other: Any,
    leaf: Any,
    /,
    *,
    first: Callable[[Any], Any] | None = None,
    layers: int = 2,
    optimizer_kind: str | None = None,
    slots: Mapping[str, Any] | None = None,
    **fields: Any,
) -> tuple[Draft, dict[str, Any]]:
    """The draft that an operation's example makes of a checkpoint, and the sources it reads.

    ``other`` is another checkpoint, ``leaf`` each leaf of a third one that holds params alone; a mask keeps where it is
    above zero. ``fields`` are added to the edit.
    """
    document = YAML(typ="safe").load(kind.example)
    edits = document if isinstance(document, list) else [document]
    edits[-1] |= fields
    edits = [*BEFORE.get(edits[-1]["op"], []), *edits]
    if first is not None:
        edits.insert(0, {"op": "map", "at": "params", "with": "edit.py:first"})
    told: dict[str, Any] = {} if optimizer_kind is None else {"optimizer_kind": optimizer_kind}
    told |= {} if slots is None else {"slots": dict(slots)}
    plan = plan_from_document({"edits": edits, **told})
    functions = {"first": first, "halve": lambda array: 2 * array + 1}
    sources = {
        "runs/other": other,
        "runs/third": copy(other),
        "runs/weights": ArraySource(dict.fromkeys(layer_names(layers), leaf)),
        "runs/lora": ArraySource(_lora_of(leaf, layers)),
        "masks/kernel.npy": ArraySource({"mask": leaf > 0}),
        "own": own,
    }
    for address, source in sources.items():
        source.fingerprint, source.address, source.steps = address, address, {}
        source.places, source.step = frozenset({address}), None
    own.step, own.steps = 500, {100: "/runs/other", 500: "/own"}
    draft = resolve(
        plan,
        own,
        lambda address: sources[address.strip("/")],
        items=DraftItems(names=("default",), taken=frozenset({"default"})),
        function=lambda text: UserFunction.of(
            text, "sha256:0", lambda array, _: functions[text.rpartition(":")[2]](array)
        ),
    )
    return draft, {f"/{name}": source for name, source in sources.items()} | {"": own}
