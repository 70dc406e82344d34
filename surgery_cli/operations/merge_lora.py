"""Make a LoRA a part of the kernels that it was trained beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

from msgspec import Meta

from surgery_cli.draft.recipe import Draft
from surgery_cli.operations.lora import WithLora
from surgery_cli.operations.lora_pairs import Donor, Pair
from surgery_cli.operations.rekey import rekey
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted
from surgery_cli.words.series import folded


class MergeLora(WithLora, tag="merge-lora", kw_only=True, frozen=True):
    r"""Add the product of a LoRA's A and B, times its scale, to the kernels of linear layers.

    What belongs to a kernel is said by the wildcards of `at`: `at: params/**/kernel`, `a: params/\1/lora_a`. A kernel
    without A and B is refused, and so is an A or B that no edit of the plan takes, unless `rest: leave` says that it is
    left out: all that stands where `a` and `b` say, or in another checkpoint is called like these, or as PEFT calls
    them. Of a folder of PEFT's, `adapter_config.json` says the scale, module by module; DoRA and all else that is no
    plain LoRA is refused. Where the LoRA stands in this checkpoint, it goes with its slots once it is merged. Computed
    in float64, rounded once.

    Source: Hu et al., LoRA; Kalajdzievski, A Rank Stabilization Scaling Factor for Fine-Tuning with LoRA.
    """

    keep: Annotated[
        bool, Meta(description="Leave a LoRA of this checkpoint where it is: it would act twice.")
    ] = False

    example: ClassVar[str] = (
        "- op: merge-lora\n  at: params/*/kernel\n  with: runs/lora\n  a: params/\\1/lora_a\n  b: params/\\1/lora_b\n"
        "  layout: flax\n  alpha: 16\n"
    )

    def finished(
        self, draft: Draft, before: Draft, pairs: Mapping[LeafPath, Pair], donor: Donor
    ) -> Draft:
        if donor.name:
            return draft
        merged = dict.fromkeys(leaf for pair in pairs.values() for leaf in pair.leaves())
        shown = quoted(folded(map(str, merged)), 3)
        if self.keep:
            return draft.noting(
                Consequence(
                    DocsPage.MERGE_LORA,
                    f"the LoRA is merged and stays, so that a model with it adds it twice: {shown}",
                )
            )
        after = rekey(draft, dict.fromkeys(merged, ()), is_literal=self.follows_nothing)
        said = f"{counted(len(merged), 'leaf', 'leaves')} of the LoRA are merged and go, with their slots: {shown}"
        return after.noting(Consequence(DocsPage.MERGE_LORA, said))
