"""How a slot gets its initial value: the optimizer's own number, or what its param is."""

from __future__ import annotations

import msgspec

from surgery_cli.draft.effect import Keeps, Sets
from surgery_cli.draft.expression import Made, with_spec
from surgery_cli.draft.kernels.convert import converted
from surgery_cli.draft.kernels.fill import Fill
from surgery_cli.draft.recipe import Draft, Edited, Output
from surgery_cli.draft.settings import check_fits
from surgery_cli.draft.slots import Slot
from surgery_cli.errors import PlanError
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded


def refilled(
    draft: Draft, path: LeafPath, value: float, policy: str = "reset", spec: LeafSpec | None = None
) -> Output:
    """The slot, or the number beside slots, with ``value`` in every element; ``spec`` if it has another shape now."""
    output = draft.leaves[path]
    spec = output.spec if spec is None else spec
    if spec.dtype != "bool":
        check_fits(value, spec, "fill")
    fill = Edited("fill_fresh", Sets(value), is_named=False)
    return output.then(Made(Fill(value), (), spec, path), fill, policy=policy)


def taking_param(draft: Draft, slot: Slot, policy: str, was: LeafSpec | None = None) -> Output:
    """The slot as a copy of what its param becomes: the same recipe.

    ``was``: what the param has been, where its elements have moved.

    Raises:
        PlanError: their shapes differ.
    """
    own = draft.leaves[slot.path].spec
    param = draft.leaves[slot.param]
    if was is not None and own.shape == was.shape:
        own = msgspec.structs.replace(param.spec, kind=own.kind, dtype=own.dtype)
    if own.shape != param.spec.shape:
        raise PlanError(
            f"'{slot.path}' cannot take the values of '{slot.param}'",
            why=f"it is {own.type_text}, the param {param.spec.type_text}",
            fix=worded("edit both by name, with {twins: named}"),
            path=str(slot.path),
        )
    spec = param.spec if param.is_by_reference else own
    spec = msgspec.structs.replace(spec, kind=own.kind, dtype=param.spec.dtype)
    copy = Output(with_spec(param.recipe, spec), param.home, policy, param.edits)
    if own.dtype == spec.dtype:
        return copy
    cast = converted(copy.recipe, own, slot.path)
    return copy.then(cast, Edited("cast", Keeps(), is_named=False))
