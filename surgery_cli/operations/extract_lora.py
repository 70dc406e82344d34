"""Approximate what a fine-tune has learnt by a LoRA."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from surgery_cli.draft.check import Check, CheckedLeaf, Measured
from surgery_cli.draft.effect import Takes
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored
from surgery_cli.draft.factor import Factor
from surgery_cli.draft.recipe import Draft, Edited, Output, is_numeric
from surgery_cli.draft.settings import check_finite
from surgery_cli.draft.source_leaves import counterpart
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Operation, Scene
from surgery_cli.operations.cast import check_storable
from surgery_cli.operations.lora_factors import Factoring, Learnt
from surgery_cli.operations.lora_layout import check_layout, stated
from surgery_cli.operations.lora_orientation import unshown_notes
from surgery_cli.operations.new_leaves import refuse_old_slots, with_new_leaves
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.paths import LeafPath, Selection
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.tree.targets import Places, Target, check_references, check_targets
from surgery_cli.words.advice import worded
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage


class ExtractLora(Operation, tag="extract-lora", kw_only=True, frozen=True):
    r"""Approximate what a fine-tune has learnt beside this checkpoint, its base, by A and B for every kernel.

    They are the truncated singular value decomposition of the difference, the best that there is of their rank. What
    they leave out is measured on what is written (`error`, by Frobenius norms, kernel by kernel). The kernels stay, so
    that with the LoRA they are about the fine-tune's; all other leaves stay as they are here. Computed in float64,
    rounded once.

    Source: Eckart and Young, The approximation of one matrix by another of lower rank.
    """

    with_: Annotated[
        str, Meta(description="The fine-tune (`CKPT`, `CKPT@N`), or a name in `sources`.")
    ] = msgspec.field(name="with")
    from_: Annotated[
        str, Meta(description=r"Path there, the same one if left out; `\1` as in `a`.")
    ] = msgspec.field(name="from", default="")
    a: Annotated[
        str,
        Meta(
            description=r"Where the A of a kernel goes: `params/\1/lora_a`; `\1`, `\2` stand for the wildcards of `at`."
        ),
    ]
    b: Annotated[str, Meta(description=r"Where its B goes: `params/\1/lora_b`.")]
    layout: Annotated[
        str,
        Meta(
            description="How the axes stand: `flax`, `peft` and `peft-transposed` as in `merge-lora`, for kernels of"
            " two axes; else all by name: `embed r, r heads dim -> embed heads dim`."
        ),
    ]
    rank: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="The rank of every LoRA.")
    ] = None
    error: Annotated[
        Annotated[float, Meta(gt=0, lt=1)] | None,
        Meta(
            description="In place of `rank`: how much may be left out of each kernel, by Frobenius norms. What has the"
            " least rank for that is found from the values, which the preview reads, too."
        ),
    ] = None
    scale: Annotated[
        float,
        Meta(description="By what A·B will be multiplied: both are made such that it fits then."),
    ] = 1.0
    split: Annotated[
        Literal["even", "a", "b"],
        Meta(description="Which factor has the singular values; `even`: each their roots."),
    ] = "even"
    scan_axis: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(description="The axis of the layers in kernels that are stacked, and in A and B."),
    ] = None
    dtype: Annotated[str, Meta(description="The dtype of A and B, the kernel's if left out.")] = ""

    example: ClassVar[str] = (
        "- op: extract-lora\n  at: params/*/kernel\n  with: runs/other\n  a: params/\\1/lora_a\n"
        "  b: params/\\1/lora_b\n  layout: flax\n  rank: 2\n"
    )
    target_fields: ClassVar[tuple[str, ...]] = ("a", "b")
    path_fields: ClassVar[tuple[str, ...]] = ("with",)
    exported_as: ClassVar[tuple[str, ...]] = ("peft", "scale")

    def selectable(self, spec: LeafSpec) -> bool:
        return spec.kind is not LeafKind.EMPTY

    def check_values(self) -> None:
        super().check_values()
        refuse_old_slots(self)
        self._check()
        check_references(self.from_, self.patterns, "from")
        for field, place in (("a", self.a), ("b", self.b)):
            check_targets(dict.fromkeys(self.patterns, place), field)

    def rewrite(self, draft: Draft, scene: Scene) -> Draft:
        selected = scene.select(self, draft)
        if not selected:
            return draft
        learnt = self._learnt(selected, draft, scene)
        factoring = Factoring(
            self.layout, self.scan_axis, self.rank, self.error, self.split, self.scale, self.dtype
        )
        new: dict[LeafPath, Output] = {}
        on: list[CheckedLeaf] = []
        gathering = Gathering()
        rule = Measured(what="error", most=math.inf if self.error is None else self.error)
        for path, one in learnt.items():
            with gathering.catching(path=str(path)):
                factors = factoring.factors(path, one, scene)
                new |= {
                    place: self._output(recipe, side)
                    for side, (place, recipe) in zip("ab", factors.items(), strict=True)
                }
                on.append(CheckedLeaf(path, rule, *factoring.left_out(path, one, factors)))
        gathering.raise_if_any()
        scene.name(new)
        like = {place: path for path, one in learnt.items() for place in (one.a, one.b)}
        after = with_new_leaves(self, draft, new, like, scene)
        check = Check(len(draft.outcomes), rule, len(on), tuple(on))
        ranks = sorted({recipe.inputs[0].spec.shape[-1] for recipe in _made(new.values())})
        found = f"the least rank for that error is {ranks[0]}"
        found += f" to {ranks[-1]}, kernel by kernel" if len(ranks) > 1 else ""
        notes: list[Note] = [] if self.error is None else [Remark(DocsPage.EXTRACT_LORA, found)]
        bound = {path: (one.base.spec,) for path, one in learnt.items()}
        notes += self._taken_for({path: one.base.spec.shape for path, one in learnt.items()})
        said = Consequence(
            DocsPage.EXTRACT_LORA,
            f"what '{self.with_}' has learnt in other leaves is in no LoRA: they stay as they are here",
        )
        return after.replaced(checks=(*after.checks, check)).noting(
            *notes, said, *unshown_notes(bound, shown_by="")
        )

    def _output(self, recipe: Recipe, side: str) -> Output:
        """A or B, with what its axes are and what scale it is made for."""
        axes = stated(self.layout, self.scan_axis).axes_of(side)
        return Output(
            recipe, None, edits=(Edited(self.name, Takes(), makes=Factor(axes, self.scale)),)
        )

    def _taken_for(self, kernels: Mapping[LeafPath, tuple[int, ...]]) -> Iterator[Consequence]:
        """Which sides the kernels have by the layout, where A has its inputs last, as B has: they are made to fit."""
        layout = stated(self.layout, self.scan_axis)
        if layout.axes_of("a") != ("rank", "inputs") or not kernels:
            return
        path, shape = next(iter(kernels.items()))
        inputs, outputs = layout.sides(shape)
        yield Consequence(
            DocsPage.EXTRACT_LORA,
            f"'{path}' {list(shape)} is taken for a layer of {inputs:,} inputs and {outputs:,} outputs, as"
            f" `{self.layout}` says",
        )

    def _check(self) -> None:
        gathering = Gathering()
        with gathering.catching():
            check_layout(self.layout, self.scan_axis)
        with gathering.catching(field="rank"):
            if (self.rank is None) == (self.error is None):
                raise PlanError(
                    worded("{rank} and {error} both say what the rank is")
                    if self.rank is not None
                    else "nothing says what the rank is",
                    fix=worded("say one of them: {rank: 8}, or {error: 0.1}"),
                )
        with gathering.catching():
            check_finite(self.scale, "scale")
            if self.scale <= 0:
                raise PlanError(
                    worded("{scale} is {:g}", self.scale),
                    why="A and B are divided by its root",
                    fix=worded("write a number above 0"),
                    field="scale",
                )
        with gathering.catching():
            if self.dtype:
                check_storable(self.dtype, "dtype")
        gathering.raise_if_any()

    def _learnt(self, selected: Selection, draft: Draft, scene: Scene) -> dict[LeafPath, Learnt]:
        name, source = scene.open(self.with_)
        places = Places(draft.leaves)
        found: dict[LeafPath, Learnt] = {}
        gathering = Gathering()
        taken: dict[LeafPath, LeafPath] = {}
        for path in selected:
            with gathering.catching(path=str(path)):
                base = draft.leaves[path].recipe
                there = counterpart(path, self.from_, self.with_, source, selected)
                tuned = Stored(LeafRef(name, there), source.tree[there])
                _check_alike(path, base.spec, there, tuned.spec)
                pattern, match = selected.match(path)
                a, b = (
                    Target(text, field).place(match, pattern, places) / match.tail
                    for field, text in (("a", self.a), ("b", self.b))
                )
                for field, place in (("a", a), ("b", b)):
                    _check_free(place, path, field, taken, draft)
                found[path] = Learnt(base, tuned, a, b)
        gathering.raise_if_any()
        return found


def _made(outputs: Iterable[Output]) -> Iterator[Made]:
    return (output.recipe for output in outputs if isinstance(output.recipe, Made))


def _check_alike(path: LeafPath, base: LeafSpec, there: LeafPath, tuned: LeafSpec) -> None:
    for spec in (base, tuned):
        if not is_numeric(spec) or is_complex(spec.dtype) or len(spec.shape) < 2:
            raise PlanError(
                f"there is no LoRA of '{path}', which is {spec.type_text}",
                why="it is for kernels of linear layers: floating, with two axes or more",
                fix=worded("name kernels alone, or leave it out with {except}"),
            )
    if base.shape != tuned.shape:
        raise PlanError(
            f"'{there}' is not what was trained from '{path}'",
            why=f"it is {tuned.type_text}, here {base.type_text}",
            fix=worded("say where it stands there with {from}, or leave it out with {except}"),
            field="with",
        )


def _check_free(
    place: LeafPath, path: LeafPath, field: str, taken: dict[LeafPath, LeafPath], draft: Draft
) -> None:
    """See that nothing stands at a place, and that nothing else goes there."""
    why = ""
    if place in taken:
        why = f"what is learnt of '{taken[place]}' goes there, too"
    elif place in draft.tree.nodes or (
        place in draft.leaves and draft.leaves[place].spec.empty != "Dict"
    ):
        why = "something stands there already"
    taken.setdefault(place, path)
    if why:
        raise PlanError(
            f"'{place}' is no place for a part of the LoRA of '{path}'",
            why=why,
            fix=worded(
                "say in {a} and {b} where those of each kernel go, with `\\1` for its wildcards"
            ),
            field=field,
        )
