"""What surgery makes of a state: the code of `surgery apply`, on a checkpoint that stands in memory or on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

from surgery_cli import surgery
from surgery_cli.compute.host import HostKit
from surgery_cli.draft.recipe import SOURCE, Draft, Recipe
from surgery_cli.draft.slots import Slot
from surgery_cli.engine.evaluation import Evaluation
from surgery_cli.operations.normalize import Normalize
from surgery_cli.operations.rescale import Rescale
from surgery_cli.planning import plan_of
from surgery_cli.resolution import resolve
from surgery_cli.script.abstract_tree import abstract_tree
from surgery_cli.script.function import Script
from surgery_cli.surgery.assumed import assumed_states as assumptions
from surgery_cli.surgery.optimizers import survey_state
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from tests.optimizer.optax_registry import leaves_of
from tests.oracle.cases import Case
from tests.oracle.training import EDITED, Trained

Values = Mapping[LeafPath, Any]


class Edited(NamedTuple):
    """The slots after the edit, the notes of the preview, and by what policy each slot was carried."""

    slots: Mapping[LeafPath, Slot]
    values: Values
    notes: tuple[str, ...]
    policies: Mapping[LeafPath, str]


class InMemory:
    """A checkpoint whose values are arrays at hand; for the rest as one that Orbax wrote."""

    step = None
    steps: Mapping[int, str] = {}
    step_formats: tuple[str, ...] = ()
    tells_kinds = True
    items: Mapping[str, Any] = {"": SimpleNamespace(layout="in memory")}
    location = SimpleNamespace(
        prefix_items=False,
        chosen="",
        shape="flat",
        step=None,
        step_directory=None,
        root=Path("/nowhere/memory"),
        items={"": Path("/nowhere/memory")},
        other_items={},
    )

    def __init__(self, pytree: Any, fingerprint: str = "sha256:0") -> None:
        self.tree = TreeSpec(leaves_of(pytree))
        self.values = values_of(pytree)
        self.fingerprint = fingerprint

    def read(self, path: LeafPath, window: Any = None) -> Any:
        return self.values[path] if window is None else self.values[path][window]


def values_of(pytree: Any) -> dict[LeafPath, Any]:
    """The arrays of a pytree, by the paths of ``leaves_of``."""

    def key(part: Any) -> Any:
        return getattr(part, "name", getattr(part, "key", getattr(part, "idx", part)))

    def values(leaf: Any) -> Any:
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf)

    found = jax.tree_util.tree_leaves_with_path(pytree)
    return {LeafPath(tuple(map(key, path))): values(leaf) for path, leaf in found}


def edit_of(case: Case, done: Trained) -> tuple[Rescale | Normalize, Any]:
    """The edit, and the array that its file holds if it has one."""
    layer, leaf = EDITED
    root = "params/fast" if hasattr(done.params, "fast") else "params"
    factor = done.by[layer][leaf]
    if case.edit == "all leaves":
        return Rescale(at=root, by=float(factor)), None
    at = f"{root}/{layer}/{leaf}"
    if case.edit == "normalize axis":
        return Normalize(at=at, axis=0), None
    if factor.ndim:
        return Rescale(at=at, by="/factor.npy"), factor
    return Rescale(at=at, by=float(factor)), None


def edited(case: Case, done: Trained) -> Edited:
    """What an edit in memory gives.

    Raises:
        SurgeryError: surgery refuses the edit.
    """
    before = {"params": done.params, "opt_state": done.state}
    checkpoint = InMemory(before)
    edit, factor = edit_of(case, done)
    plan = plan_of([edit], optimizer_kind=done.optimizer.kind if case.told == "kind" else None)
    sources: dict[str, Any] = {SOURCE: checkpoint, "/factor.npy": InMemory({"factor": factor})}
    script = _script(before, done) if case.told == "script" else None
    surveyed, looks = survey_state(checkpoint, plan, script)  # type: ignore[arg-type]
    draft = resolve(plan, checkpoint, sources.__getitem__, surveyed=surveyed)  # type: ignore[arg-type]
    values = dict(checkpoint.values)
    for path, output in draft.leaves.items():
        if not output.is_by_reference:
            values[path] = _computed(output.recipe, sources)
        elif output.home is not None and output.home.path != path:
            values[path] = values[output.home.path]
    return _edited(draft, values, [look.note for look in looks if look.note])


def edited_on_disk(case: Case, done: Trained, folder: Path) -> Edited:
    """The same through `surgery apply`, from and to checkpoints of Orbax; the preview's notes are those of the report.

    Raises:
        SurgeryError: surgery refuses the edit.
    """
    before = {"params": done.params, "opt_state": done.state}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "source", before)
    edit, factor = edit_of(case, done)
    if factor is not None:
        np.save(folder / "factor.npy", factor)
        edit = Rescale(at=edit.at, by=str(folder / "factor.npy"))
    kind = done.optimizer.kind if case.told == "kind" else None
    report = surgery.apply(
        str(folder / "source"),
        str(folder / "goal"),
        plan_of([edit], optimizer_kind=kind),
    )
    target = jax.tree.map(ocp.utils.to_shape_dtype_struct, before)
    with ocp.StandardCheckpointer() as checkpointer:
        after = checkpointer.restore(folder / "goal", target)
    in_memory = edited(case, done)
    notes = (*report.notes, *(taken.sentence for taken in report.assumptions))
    return in_memory._replace(values=values_of(after), notes=notes)


def _computed(recipe: Recipe, sources: Mapping[str, Any]) -> Any:
    shape = recipe.spec.shape
    evaluation = Evaluation(recipe, sources, HostKit(), shape)
    return evaluation.block(tuple(slice(0, n) for n in shape))


def _edited(draft: Draft, values: Values, looked: list[str]) -> Edited:
    slots = {path: slot for path, slot in draft.slots.items() if slot.relation != "hole"}
    policies = {path: draft.leaves[path].policy for path in slots}
    assumed = [taken.sentence for taken in assumptions(draft)]
    return Edited(slots, values, (*looked, *draft.notes, *assumed), policies)


def _script(before: Any, done: Trained) -> Script:
    """The training script, as `--like-init` sees it."""

    return Script(
        "train.py:state", abstract_tree(lambda: before | {"tx": done.optimizer.transformation})
    )
