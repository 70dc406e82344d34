"""The recipe of a slot that is taken from a donor."""

from __future__ import annotations

import msgspec

from surgery_cli.draft.effect import Keeps
from surgery_cli.draft.expression import LeafRef, Stored
from surgery_cli.draft.kernels.convert import converted
from surgery_cli.draft.recipe import Edited, Output
from surgery_cli.errors import PlanError
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec


def grafted(origin: LeafRef, donor: LeafSpec, own: LeafSpec, path: LeafPath) -> Output | None:
    """The recipe of a slot that is taken from a donor, in the slot's own dtype."""
    if donor.dtype == own.dtype:
        spec = msgspec.structs.replace(
            own,
            chunk_shape=donor.chunk_shape,
            write_shape=donor.write_shape,
            stored_bytes=donor.stored_bytes,
        )
        return Output.of(origin, spec, "donor")
    try:
        after = msgspec.structs.replace(own, stored_bytes=None)
        recipe = converted(Stored(origin, donor), after, path)
    except PlanError:
        return None
    return Output(recipe, origin, "donor", (Edited("cast", Keeps(), is_named=False),))
