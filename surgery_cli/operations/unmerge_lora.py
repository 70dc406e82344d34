"""Take a LoRA that was merged out of the kernels again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from surgery_cli.draft.check import Check, CheckedLeaf, Measured
from surgery_cli.draft.expression import Made
from surgery_cli.draft.kernels.low_rank import HalfSpacing
from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.lora import WithLora
from surgery_cli.operations.lora_pairs import Donor, Pair
from surgery_cli.tree.dtypes import FLOATS
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage


class UnmergeLora(WithLora, tag="unmerge-lora", kw_only=True, frozen=True):
    r"""Subtract the product of a LoRA's A and B, times its scale, from kernels into which it was merged.

    What was rounded when it was merged stays lost: the kernels are what they were up to that, and how far they may be
    from it is measured of each (`rounding`, by Frobenius norms). Where the record says that it was merged otherwise,
    that is refused; where it says nothing of it, that is said. Where what was merged is there with its record, `surgery
    plan --inverse` gives every bit back. All else is as in `merge-lora`; the LoRA stays.
    """

    example: ClassVar[str] = (
        "- op: unmerge-lora\n  at: params/*/kernel\n  with: runs/lora\n  a: params/\\1/lora_a\n"
        "  b: params/\\1/lora_b\n  layout: flax\n  alpha: 16\n"
    )
    sign: ClassVar[int] = -1

    def finished(
        self, draft: Draft, before: Draft, pairs: Mapping[LeafPath, Pair], donor: Donor
    ) -> Draft:
        on = []
        for path in pairs:
            merged, recipe = before.leaves[path].recipe, draft.leaves[path].recipe
            shape, chunks = merged.spec.shape, merged.spec.chunk_shape
            wide = LeafSpec(kind=LeafKind.NUMPY, shape=shape, dtype="float64", chunk_shape=chunks)
            lost = Made(HalfSpacing(), (merged,), wide, path)
            rule = Measured(what="rounding", beyond=FLOATS[merged.spec.dtype].rounding)
            on.append(CheckedLeaf(path, rule, recipe, lost))
        check = Check(len(draft.outcomes), Measured(what="rounding"), len(on), tuple(on))
        said = "if this LoRA was merged with this scale, the kernels are what they were before, up to what rounding"
        said += " took then; how much that may be is measured (`rounding`)"
        return draft.replaced(checks=(*draft.checks, check)).noting(
            Consequence(DocsPage.UNMERGE_LORA, said)
        )
