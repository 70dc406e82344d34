"""Where a model and a checkpoint do not fit: every variable without its leaf, and what may have led to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from surgery_cli.errors import Problem, SurgeryError
from surgery_cli.probing.model.calls import Expected, Path, Slot
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

_BOXES: Final = ("value", "raw_value")
"""The last key of a leaf that was saved inside a Flax variable or a metadata box."""

_MOST_SEARCHED: Final = 12
"""For so many leaves that are missing another of their shape is looked for; where it is more, no rename mends it."""


class Misfit(SurgeryError):
    """The model and the checkpoint do not fit each other (exit code 1: a check found something)."""

    exit_code = 1


def fits(spec: LeafSpec, wanted: Expected) -> bool:
    """True if the leaf can stand for the variable: the same shape, a key for a key, numbers for numbers.

    Of a variable whose shape is an input's, only the number of axes is asked for.
    """
    if not spec.has_array:
        return False
    found = as_expected(spec)
    is_alike = (
        len(found.shape) == len(wanted.shape) if wanted.is_derived else found.shape == wanted.shape
    )
    return is_alike and found.dtype.startswith("key<") == wanted.dtype.startswith("key<")


def as_expected(spec: LeafSpec) -> Expected:
    if spec.kind is LeafKind.KEY:
        return Expected(spec.shape[:-1], f"key<{spec.key_impl}>")
    return Expected(spec.shape, spec.dtype)


def unboxed(path: LeafPath) -> Path:
    keys = tuple(map(str, path))
    return keys[:-1] if len(keys) > 1 and keys[-1] in _BOXES else keys


def nowhere(name: str, wanted: Mapping[Path, Expected], tree: TreeSpec) -> Problem:
    first = next(path for path in wanted)
    near = nearest("/".join(first), map(str, tree), 3)
    there = next((str(node) for node in tree.nodes if node[-1:] == (name,)), None)
    return Problem(
        f"the checkpoint has nothing of the model's collection '{name}'"
        if there is None
        else f"the checkpoint has '{there}', but none of the model's {name} in it",
        why=f"the model needs {len(wanted)} leaves, the first is '{'/'.join(first)}' {wanted[first].text}",
        fix=("nearest in the checkpoint: " + ", ".join(f"'{n}'" for n in near)) if near else "",
    )


def findings(
    places: Mapping[str, LeafPath],
    missing: Mapping[Slot, Expected],
    shapes: list[tuple[LeafPath, LeafSpec, Expected]],
    unused: list[LeafPath],
    tree: TreeSpec,
) -> list[Problem]:
    """Every misfit as a problem, with what may have led to it."""
    problems = []
    hint = _shape_hint(shapes)
    for leaf, spec, wanted in shapes:
        problems.append(
            Problem(
                f"'{leaf}' is {spec.type_text}, the model wants {wanted.text}",
                fix=hint,
                path=str(leaf),
            )
        )
        hint = ""  # once is enough
    for number, ((name, path), wanted) in enumerate(missing.items()):
        at = places[name] / path
        is_searched = number < _MOST_SEARCHED
        renamed = [leaf for leaf in unused if is_searched and fits(tree[leaf], wanted)]
        same_end = [leaf for leaf in renamed if unboxed(leaf)[-1] == path[-1]] or renamed
        fix = ""
        if same_end:
            near = nearest(str(at), map(str, same_end), 1) or [str(same_end[0])]
            fix = f"renamed? `surgery rename SRC DST {near[0]} --to {at}`"
        problems.append(
            Problem(
                f"the model wants '{at}' {wanted.text}, which is not there",
                why=f"'{near[0]}', which the model does not ask for, has this shape" if fix else "",
                fix=fix,
                path=str(at),
            )
        )
    return problems


def _shape_hint(shapes: list[tuple[LeafPath, LeafSpec, Expected]]) -> str:
    """What a common pattern in the shapes says."""
    if not shapes:
        return ""
    stacks = {
        s.shape[0]
        for _, s, w in shapes
        if len(s.shape) == len(w.shape) + 1 and s.shape[1:] == w.shape
    }
    if len(stacks) == 1 and all(s.shape[1:] == w.shape for _, s, w in shapes):
        count = stacks.pop()
        return (
            f"the checkpoint stacks {count} layers or models on a leading axis, the model does not; "
            f"an ensemble runs with `--ensemble {count}`"
        )
    if all(w.shape[1:] == s.shape for _, s, w in shapes):
        return "the model stacks its layers on a leading axis (`nn.scan`), the checkpoint does not"
    firsts = {(s.shape[:1], w.shape[:1]) for _, s, w in shapes if s.shape[1:] == w.shape[1:]}
    if (
        len(firsts) == 1
        and len(shapes) > 1
        and all(s.shape[1:] == w.shape[1:] for _, s, w in shapes)
    ):
        ((stored, here),) = firsts
        return (
            f"only the first axis differs, {stored} stored and {here} here: "
            "the number of layers in a scan, or of models for `--ensemble`"
        )
    if len(shapes) == 1:
        leaf, spec, wanted = shapes[0]
        if (
            unboxed(leaf)[-1] == "kernel"
            and len(spec.shape) == len(wanted.shape)
            and spec.shape[-1:] == wanted.shape[-1:]
        ):
            return (
                f"only the size of its input differs: {spec.shape[-2:-1]} stored, {wanted.shape[-2:-1]} here; "
                "is `--input` of the shape that the model was trained on?"
            )
    return "is this the model, with the arguments, that the checkpoint was trained with?"
