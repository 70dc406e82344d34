"""What `reshard` asks of the outside: another checkpoint, or what a script says of its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.planning import Plan
from surgery_cli.proof.sharding_file import sharding_faults
from surgery_cli.resolution import refuse_other_donors
from surgery_cli.resolution.reshard import resharded
from surgery_cli.script.function import Script, read_script
from surgery_cli.script.items import aligned
from surgery_cli.script.user_code import Say
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.item import PytreeItem
from surgery_cli.surgery.like_init import items_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.sharding import NamedSharding
from surgery_cli.tree.specs import TreeSpec


def laid_out(
    draft: Draft,
    plan: Plan,
    checkpoint: Checkpoint,
    sources: dict[str, Any],
    open_source: Callable[[str], Any],
    script: Script | None,
    say: Say,
) -> Draft:
    """The draft with the layout that the plan asks for; a checkpoint whose layout that is becomes one of ``sources``.

    Raises:
        PlanError: the layout cannot be had, or nothing says which.
    """
    assert plan.reshard is not None
    _refuse_without_chunks(checkpoint)

    def open_tree(name: str) -> TreeSpec:
        sources[name] = open_source(plan.sources.get(name, name))
        if isinstance(sources[name], Checkpoint):
            _refuse_faulty(name, sources[name])
        tree: TreeSpec = sources[name].tree
        return tree

    @cache  # it runs the script
    def shardings(name: str) -> Mapping[LeafPath, NamedSharding | None]:
        read = script if script is not None and script.name == name else read_script(name, say=say)
        found = aligned(read.name, read.abstract, draft.tree, items_of(checkpoint, draft))
        return {path: NamedSharding.of_text(spec.sharding) for path, spec in found.wanted.items()}

    draft = resharded(draft, plan.reshard, open_tree, shardings)
    opened = {name: source.fingerprint for name, source in sources.items()}
    others = {name: opened[name] for name in opened.keys() - draft.fingerprints.keys()}
    refuse_other_donors(plan.fingerprints, others, "another layout")
    return draft.replaced(fingerprints={**draft.fingerprints, **opened})


def _refuse_faulty(name: str, other: Checkpoint) -> None:
    """Refuse to take shardings from a checkpoint that says some of which JAX makes none.

    Raises:
        PlanError: so; each is named.
    """
    raise_all(
        Problem(
            f"`{file}` of '{name}' has what JAX refuses",
            why=fault,
            fix="name a checkpoint that Orbax restores as it is, or give a mesh and specs",
            field="like",
        )
        for item in other.items.values()
        if isinstance(item, PytreeItem)
        for file, fault in sharding_faults(item)
    )


def _refuse_without_chunks(checkpoint: Checkpoint) -> None:
    """Refuse formats that have no chunks, or no place for shardings: T5X, and Orbax before it wrote `_METADATA`.

    Raises:
        PlanError: a tree is not stored in arrays of TensorStore.
    """
    for item in checkpoint.items.values():
        if not isinstance(item, PytreeItem) or item.store is None:
            raise PlanError(
                f"'{checkpoint.location.root}' cannot be laid out anew",
                why=f"it is stored as {item.layout}, which has neither chunks nor shardings",
                fix="restore and save it with Orbax once, then reshard that",
                field="reshard",
            )
        if item.aggregate is not None and item.sidecars.values is None:
            writer = "T5X" if item.is_t5x else "a release of Orbax before `_METADATA`"
            raise PlanError(
                f"'{checkpoint.location.root}' cannot be laid out anew",
                why=f"{writer} wrote it, whose `checkpoint` file has no place for shardings",
                fix="restore and save it with Orbax of today once, then reshard that",
                field="reshard",
            )
