"""A kernel with the product of a LoRA's A and B, of whatever axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from surgery_cli.draft.expression import Made, Recipe, made
from surgery_cli.draft.kernels.low_rank import AddProduct
from surgery_cli.draft.kernels.reshape import Reshape
from surgery_cli.draft.recipe import is_numeric
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.lora_layout import Misfit, fitted, names_that_fit
from surgery_cli.operations.numeric import is_integers
from surgery_cli.tree.dtypes import is_complex
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted, number_text

_MOST_SCALES: Final = 4


def with_product(
    path: LeafPath,
    kernel: Recipe,
    after: LeafSpec,
    parts: Mapping[LeafPath, Recipe],
    layout: str,
    scan_axis: int | None,
    by: Callable[[int], float],
) -> Recipe:
    """The kernel plus A·B, by what ``by`` says for their rank; ``parts`` are A, B and alpha, where that is stored.

    Raises:
        PlanError: the shapes do not go together, or one of them is not floating.
    """
    (at_a, a), (at_b, b), *alpha = parts.items()
    gathering = Gathering()
    for leaf, part in parts.items():
        with gathering.catching(path=str(path)):
            _check_part(leaf, part.spec, is_number=leaf not in (at_a, at_b))
    gathering.raise_if_any()
    try:
        fit = fitted(layout, scan_axis, a.spec.shape, b.spec.shape, kernel.spec.shape)
    except Misfit as misfit:
        specs = (a.spec, b.spec, kernel.spec)
        raise _misfit(path, (at_a, at_b), specs, scan_axis, misfit) from None
    product = AddProduct(fit.axes, by(fit.rank))
    factors = (_shaped(a, fit.a, at_a), _shaped(b, fit.b, at_b))
    return made(product, (kernel, *factors, *(number for _, number in alpha)), after, path)


def scales_note(kernels: Iterable[Recipe], sign: int, times: str) -> Remark:
    """By what the products are multiplied, each number with how many kernels it is for; ``times``: and by what else."""
    made = (one.kernel for one in kernels if isinstance(one, Made))
    counts = Counter(sign * one.by for one in made if isinstance(one, AddProduct))
    each = (f"{number_text(by)}{times} for {counted(n, 'kernel')}" for by, n in counts.items())
    return Remark(DocsPage.MERGE_LORA, f"A·B is multiplied by {listed(each, _MOST_SCALES)}")


def _shaped(part: Recipe, shape: tuple[int, ...], path: LeafPath) -> Recipe:
    """A or B with the kernel's axes one by one."""
    if part.spec.shape == shape:
        return part
    by = Reshape(shape)
    return made(by, (part,), by.output(part.spec), path)


def _check_part(path: LeafPath, spec: LeafSpec, *, is_number: bool) -> None:
    is_real = is_numeric(spec) and not is_complex(spec.dtype)
    if (spec.size == 1 and (is_real or is_integers(spec))) if is_number else is_real:
        return
    raise PlanError(
        f"'{path}' is no part of a LoRA: it is {spec.type_text}",
        why="alpha is one number" if is_number else "A and B are floating",
        fix=worded("correct {alpha}") if is_number else worded("correct {a} or {b}"),
    )


def _misfit(
    path: LeafPath,
    at: tuple[LeafPath, LeafPath],
    specs: tuple[LeafSpec, LeafSpec, LeafSpec],
    scan_axis: int | None,
    why: Misfit,
) -> PlanError:
    a, b, kernel = specs
    others = names_that_fit(scan_axis, a.shape, b.shape, kernel.shape)
    fix = worded(
        "say how the axes stand: {layout: '{}'}", "embed r, r heads dim -> embed heads dim"
    )
    if others:
        fix = worded("with {layout: {}} they would", " or ".join(others))
    return PlanError(
        f"'{at[0]}' and '{at[1]}' do not make '{path}'",
        why=f"A is {a.type_text}, B {b.type_text}, the kernel {kernel.type_text}: {why}",
        fix=fix,
        field="layout",
    )
