"""What operations have in common that add a LoRA to kernels, or take it out again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from surgery_cli.draft.effect import Effect, Shifts
from surgery_cli.draft.expression import LeafRef, Recipe, Stored
from surgery_cli.draft.recipe import Draft, Edited, Output
from surgery_cli.draft.settings import check_finite
from surgery_cli.errors import Gathering, PlanError, raise_all
from surgery_cli.operations.adapter_config import (
    read_config,
    refuse_other_tensors,
)
from surgery_cli.operations.base import Scene
from surgery_cli.operations.lora_layout import check_layout
from surgery_cli.operations.lora_orientation import (
    bound_by,
    shown_by,
    unshown_notes,
)
from surgery_cli.operations.lora_pairs import (
    Donor,
    Pair,
    beyond_pairs,
    pair_of,
    refuse_shared,
)
from surgery_cli.operations.lora_products import scales_note, with_product
from surgery_cli.operations.lora_rest import left_over, taking
from surgery_cli.operations.lora_scale import SaidScale
from surgery_cli.operations.partners import Missing, Partnered
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.tree.targets import check_references
from surgery_cli.words.advice import worded


class WithLora(Partnered, kw_only=True, frozen=True):
    """An edit by which kernels meet a LoRA. Subclasses say whether it is added or subtracted."""

    a: Annotated[
        str,
        Meta(
            description=r"Where the A of a kernel stands: `params/\1/lora_a`; `\1`, `\2` stand for the wildcards of"
            " `at`. What follows the node that `at` names is appended."
        ),
    ]
    b: Annotated[str, Meta(description=r"Where its B stands: `params/\1/lora_b`.")]
    layout: Annotated[
        str,
        Meta(
            description="How the axes stand. `flax`: A is (in, r), B (r, out), the kernel (in, out), and in and out may"
            " be several axes. `peft`: A is (r, in), B (out, r), the kernel (out, in), as PyTorch has it."
            " `peft-transposed`: the same A and B, the kernel (in, out), as Flax and Conv1D have it. Else all axes by"
            " name, such as `r embed, (heads dim) r -> embed heads dim`."
        ),
    ]
    with_: Annotated[
        str,
        Meta(
            description="Where the LoRA stands: a checkpoint, a folder of PEFT's, a name in `sources`. Left out, in"
            " this checkpoint."
        ),
    ] = msgspec.field(name="with", default="")
    scale: Annotated[
        float | None,
        Meta(description="By what A·B is multiplied; 1 for `nnx.LoRA`, which has no other."),
    ] = None
    alpha: Annotated[
        float | str | None,
        Meta(
            description=r"In place of `scale`: it is alpha / r. A number, or where it stands: `params/\1/alpha`."
            " An adapter of PEFT's says it itself."
        ),
    ] = None
    rslora: Annotated[bool, Meta(description="With `alpha`: the scale is alpha / √r.")] = False
    scan_axis: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="The axis of the layers in A, B and kernels that are stacked, beside those of `layout`."
        ),
    ] = None
    missing: Missing = "error"
    rest: Annotated[
        Literal["error", "leave"],
        Meta(
            description="Parts of the LoRA that no edit of the plan takes: `leave` leaves them out."
        ),
    ] = "error"

    path_fields: ClassVar[tuple[str, ...]] = ("with",)
    sign: ClassVar[int] = 1
    """1 if the product is added, -1 if it is subtracted."""

    @property
    def effect(self) -> Effect:
        return Shifts()

    def check_values(self) -> None:
        super().check_values()
        gathering = Gathering()
        with gathering.catching():
            check_layout(self.layout, self.scan_axis)
        for field in ("scale", "alpha"):
            value = getattr(self, field)
            if isinstance(value, str | None):
                continue
            with gathering.catching():
                check_finite(value, field)
        with gathering.catching():
            self._said.check_values()
        for field in ("a", "b", "alpha"):
            place = getattr(self, field)
            with gathering.catching():
                if isinstance(place, str):
                    check_references(place, self.patterns, field)
        gathering.raise_if_any()

    def donor(self, draft: Draft, scene: Scene) -> Donor:
        """Where the LoRA stands.

        Raises:
            PlanError: it is an adapter that does more than to add A·B.
        """
        donor = self._place(draft, scene)
        if not donor.name:
            return donor
        source = scene.open(self.with_)[1]
        config = read_config(source, self.with_)
        if config is not None:
            refuse_other_tensors([path.text for path in source.tree], self.with_)
        if config is not None and config.fan_in_fan_out and self.layout == "peft":
            raise PlanError(
                f"'{self.with_}' says `fan_in_fan_out`, and {self.layout!r} that kernels are (out, in)",
                why="its base model had its kernels as (in, out)",
                fix=worded(
                    "say {layout: peft-transposed}; or, where this checkpoint has them turned, {layout: '{}'}",
                    "r in, out r -> out in",
                ),
                field="layout",
            )
        return donor._replace(config=config)

    def _place(self, draft: Draft, scene: Scene) -> Donor:
        if not self.with_:
            return Donor("this checkpoint", "", draft, slots=frozenset(draft.slots))
        name, source = scene.open(self.with_)
        return Donor(self.with_, name, source)

    def meet(self, path: LeafPath, named: Selection, draft: Draft, scene: Scene) -> None:
        self._pair(path, named, self._place(draft, scene))

    def _pair(self, path: LeafPath, named: Selection, donor: Donor) -> Pair:
        alpha = self.alpha if isinstance(self.alpha, str) else ""
        return pair_of(path, (self.a, self.b, alpha), donor.text, donor.leaves, named)

    def pairs(self, named: Selection, donor: Donor) -> dict[LeafPath, Pair]:
        """What belongs to every kernel.

        Raises:
            PlanError: something is left over, on either side.
        """
        found: dict[LeafPath, Pair] = {}
        gathering = Gathering()
        for path in named:
            with gathering.catching(path=str(path)):
                found[path] = self._pair(path, named, donor)
        with gathering.catching():
            refuse_shared(found, own=not donor.name)
        with gathering.catching():
            raise_all(beyond_pairs(found.values(), donor.leaves, donor.text))
        if gathering.problems and found:  # where none is right, the places are wrong as a whole
            every = (*found.values(), *self._left_out(named, donor).values())
            taken = {leaf for pair in every for leaf in pair.leaves()} | donor.slots
            over = left_over((self.a, self.b), donor.leaves, taken, donor.text)
            gathering.problems += (problem for _, problem in over)
        gathering.raise_if_any()
        return found

    def _left_out(self, named: Selection, donor: Donor) -> dict[LeafPath, Pair]:
        """The LoRA of kernels that are excepted, where they have one."""
        found: dict[LeafPath, Pair] = {}
        for path in named.excluded:
            with suppress(PlanError):  # what is left out need not have any
                found[path] = self._pair(path, named, donor)
        return found

    def product(
        self, path: LeafPath, recipe: Recipe, pair: Pair, donor: Donor, draft: Draft
    ) -> Recipe:
        """The kernel with the LoRA of ``pair``. Raises PlanError as ``with_product``."""
        after = self.output(recipe.spec)
        parts = {leaf: _part(leaf, donor, draft) for leaf in pair.leaves()}

        def by(rank: int) -> float:
            return self.sign * self._said.by(str(pair.a), rank, donor.config)

        return with_product(path, recipe, after, parts, self.layout, self.scan_axis, by)

    def output(self, spec: LeafSpec) -> LeafSpec:
        after = super().output(spec)
        if is_complex(spec.dtype):
            raise PlanError(
                f"{self.name} does not apply to {spec.type_text}",
                why="kernels of linear layers are real",
                fix=worded("leave it out with {except}"),
            )
        return after

    @property
    def _said(self) -> SaidScale:
        return SaidScale(self.scale, self.alpha, self.rslora, self.with_)

    def copies(
        self, pairs: Mapping[LeafPath, Pair], draft: Draft
    ) -> Iterator[tuple[LeafPath, Pair]]:
        """Copies of kernels, such as a moving average, that have a LoRA of their own in the same place."""
        for path, pair in pairs.items():
            for slot in draft.slots_of.get(path, ()):
                if not slot.is_params_like or slot.relation != "same":
                    continue
                own = [slot.place_for(leaf) for leaf in pair.leaves()]
                if all(leaf is not None and leaf in draft.leaves for leaf in own):
                    yield slot.path, Pair(*(leaf for leaf in own if leaf is not None))

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        selected, notes = self.partnered(scene.select(self, draft), draft, scene)
        if not selected:
            return draft
        donor = self.donor(draft, scene)
        self._said.check(donor.config)
        pairs = self.pairs(selected, donor)
        own = {} if donor.name or self.follows_nothing else dict(self.copies(pairs, draft))
        changed: dict[LeafPath, Output] = {}
        gathering = Gathering()
        for path, pair in {**own, **pairs}.items():
            with gathering.catching(path=str(path)):
                output = draft.leaves[path]
                recipe = self.product(path, output.recipe, pair, donor, draft)
                edit = Edited(self.name, Shifts(), is_named=path in pairs)
                changed[path] = output.then(recipe, edit, policy="" if path in pairs else "carried")
        gathering.raise_if_any()
        others = self._left_out(selected, donor)
        shown = shown_by(self.layout, self.scan_axis, pairs, others, donor, draft)
        after = scene.carried(draft.with_leaves(changed), self, [*changed], draft)
        times = " times the alpha that is stored" if isinstance(self.alpha, str) else ""
        said = scales_note((changed[path].recipe for path in pairs), self.sign, times)
        bound = {path: bound_by(path, pair, donor, draft) for path, pair in pairs.items()}
        after = after.noting(*notes, said, *unshown_notes(bound, shown))
        if donor.config is not None:
            names = [path.text for path in donor.leaves.tree]
            after = after.noting(*donor.config.untouched_notes(names, donor.text))
        every = [*pairs.values(), *others.values()]
        part = taking(self.name, (self.a, self.b), every, donor, draft, scene)
        part = msgspec.structs.replace(part, may_leave=self.rest == "leave")
        after = after.replaced(takings=(*after.takings, part))
        return self.finished(after, draft, {**own, **pairs}, donor)

    def finished(
        self, draft: Draft, before: Draft, pairs: Mapping[LeafPath, Pair], donor: Donor
    ) -> Draft:
        """The draft once every kernel has met its LoRA."""
        return draft


def _part(leaf: LeafPath, donor: Donor, draft: Draft) -> Recipe:
    """A part of a LoRA, as it is stored, or as it is here at that moment."""
    if not donor.name:
        return draft.leaves[leaf].recipe
    return Stored(LeafRef(donor.name, leaf), donor.leaves.tree[leaf])
