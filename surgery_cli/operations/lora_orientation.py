"""What shows that a layout is right: shapes where axes differ in size, an adapter's own words, or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from surgery_cli.draft.expression import Stored
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import PlanError
from surgery_cli.inputs.peft_names import NAME, base_weight, weights_of
from surgery_cli.operations.lora_layout import NAMED, names_that_fit, stated
from surgery_cli.operations.lora_pairs import Donor, Pair
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted

Bound: TypeAlias = Mapping[LeafPath, Sequence[LeafSpec]]
"""Of every kernel the leaves whose axes a layout binds to each other: itself, and A and B where these are given."""

_OF_CONFIG: Final = {False: "peft", True: "peft-transposed"}
"""How the kernels of a base model stand, by what its adapter says of `fan_in_fan_out`."""


def is_shown(leaves: Sequence[LeafSpec]) -> bool:
    """True if no leaf has two axes of one size, such that its shape shows their order.

    The order within an axis no shape shows: ``surgery.rearranged_kernels`` looks at what was done before.
    """
    wide = ([size for size in leaf.shape if size > 1] for leaf in leaves)
    return all(len({*sizes}) == len(sizes) for sizes in wide)


def unshown_notes(bound: Bound, shown_by: str) -> Iterator[Note]:
    """A note of the kernels for which no shape shows that `layout` is right; ``shown_by`` is what else does."""
    unshown = [path for path, leaves in bound.items() if not is_shown(leaves)]
    if not unshown:
        return
    said = worded(
        "no shape shows that {layout} is right for {} of {}, which have axes of one size: '{}' {}",
        f"{len(unshown):,}",
        counted(len(bound), "kernel"),
        str(unshown[0]),
        bound[unshown[0]][0].type_text,
    )
    if len(unshown) > 1:
        said += " and others"
    yield (
        Remark(DocsPage.LAYOUTS, said + f"; this does: {shown_by}")
        if shown_by
        else Consequence(DocsPage.LAYOUTS, said)
    )


class _Witness(NamedTuple):
    """Something beside the kernels that are edited that tells how kernels stand to the adapter."""

    layouts: Sequence[str]
    why: str


def shown_by(
    layout: str,
    scan_axis: int | None,
    pairs: Mapping[LeafPath, Pair],
    others: Mapping[LeafPath, Pair],
    donor: Donor,
    draft: Draft,
) -> str:
    """What shows that a layout is right for kernels whose own shapes do not; '' if nothing does.

    ``others``: kernels that the edit leaves out, with the LoRA of each. A layout that is said axis by axis is taken at
    its word, and so is one for kernels that the plan has changed before.

    Raises:
        PlanError: the adapter's own file speaks for another one, or all other kernels that have a LoRA in it.
    """
    if any(is_shown(bound_by(path, pair, donor, draft)) for path, pair in pairs.items()):
        return "the other kernels fit no other"
    if layout not in NAMED or not all(_is_as_stored(path, draft) for path in pairs):
        return ""
    for witness in (
        _of_shapes(scan_axis, {**_by_name(donor, draft, pairs), **others}, donor, draft),
        _of_config(pairs, donor),
    ):
        if witness is None:
            continue
        if layout in witness.layouts:
            return witness.why
        raise PlanError(
            worded("{layout: {}} is not how these kernels stand to '{}'", layout, donor.text),
            why=f"{witness.why}; their own axes are of one size, and would not show it",
            fix=worded(
                "say {layout: {}}; or, if these alone have their axes so, {layout: '{}'}",
                " or ".join(witness.layouts),
                str(stated(layout, scan_axis)),
            ),
            field="layout",
        )
    return ""


def _is_as_stored(path: LeafPath, draft: Draft) -> bool:
    recipe = draft.leaves[path].recipe
    return isinstance(recipe, Stored) and recipe.ref.path == path


def bound_by(path: LeafPath, pair: Pair, donor: Donor, draft: Draft) -> tuple[LeafSpec, ...]:
    """A kernel, its A and its B, as they are when they meet."""
    return (draft.leaves[path].spec, donor.leaves.tree[pair.a], donor.leaves.tree[pair.b])


def _of_shapes(
    scan_axis: int | None, others: Mapping[LeafPath, Pair], donor: Donor, draft: Draft
) -> _Witness | None:
    """What the shapes of other kernels with a LoRA fit; None if they show nothing, or not all the same."""
    told: dict[tuple[str, ...], LeafPath] = {}
    for path, pair in others.items():
        leaves = bound_by(path, pair, donor, draft)
        if not _is_as_stored(path, draft) or not is_shown(leaves):
            continue
        kernel, a, b = (leaf.shape for leaf in leaves)
        if names := names_that_fit(scan_axis, a, b, kernel):
            told.setdefault(tuple(names), path)
    if len(told) != 1:
        return None
    ((layouts, path),) = told.items()
    of = f"'{path}' {draft.leaves[path].spec.type_text}"
    return _Witness(layouts, f"{of} goes with {' or '.join(map(repr, layouts))} alone")


def _by_name(donor: Donor, draft: Draft, named: Mapping[LeafPath, Pair]) -> dict[LeafPath, Pair]:
    """The kernels called as PEFT calls those of an adapter's base model, that are not named, with their LoRA."""
    if donor.config is None:
        return {}
    at = {path.text: path for path in draft.leaves if path not in named}
    tensors = {path.text: path for path in donor.leaves.tree}
    return {
        at[weight]: Pair(tensors[a], tensors[b])
        for weight, a, b in weights_of(tensors)
        if weight in at
    }


def _of_config(pairs: Mapping[LeafPath, Pair], donor: Donor) -> _Witness | None:
    """What the adapter says of its base model, if the kernels have its names."""
    if donor.config is None:
        return None
    if any(path.text != base_weight(pair.a.text) for path, pair in pairs.items()):
        return None
    turned = donor.config.fan_in_fan_out
    setting = f"`fan_in_fan_out: {'true' if turned else 'false'}`"
    axes = "(in, out)" if turned else "(out, in)"
    why = f"`{NAME}` says {setting} of the model whose names they have, in which they are {axes}"
    return _Witness((_OF_CONFIG[turned],), why)
