"""The members of an average: which checkpoints, in which order, each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from surgery_cli.draft.recipe import SOURCE, Draft, is_numeric
from surgery_cli.draft.source import Source
from surgery_cli.errors import Gathering, PlanError
from surgery_cli.operations.base import Operation
from surgery_cli.operations.layered import Layered, shown_layered
from surgery_cli.operations.named_elsewhere import named_elsewhere
from surgery_cli.operations.nonnegative import FOLLOWING, in_optimizer_state
from surgery_cli.operations.step_ranges import named_steps
from surgery_cli.optimizer.follow.states import States
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import listed
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage

_MOST_ALIKE: Final = 3
MOST_NAMED: Final = 24
"""Members of equal weight that a note names one by one."""


class Member(msgspec.Struct, frozen=True):
    """A checkpoint that takes part. ``name`` is the one under which the draft knows it, '' for the first member.

    ``text`` is how the edit names it.
    """

    name: str
    text: str
    source: Source
    tree: TreeSpec


def others_of(named: Sequence[str], steps: str, scene: States) -> list[Member]:
    """All members but the first, opened, in the order of their weights.

    ``named`` are checkpoints; with a range of ``steps`` (`A..B`) at most one, the run, and none for the own run.

    Raises:
        PlanError: there are none, or some cannot be opened; all of these together.
        CheckpointError: one is damaged.
    """
    addresses = _addresses(named, steps, scene)
    gathering = Gathering()
    members = []
    for address in addresses:
        with gathering.catching(field="with"):
            name, source = scene.open(address)
            members.append(Member(name, address, source, source.tree))
    gathering.raise_if_any()
    return members


def _addresses(named: Sequence[str], steps: str, scene: States) -> list[str]:
    if not steps:
        return list(named)
    run = scene.open(named[0])[1] if named else scene.source
    if not run.steps:
        raise PlanError(
            f"'{named[0] if named else run.address}' is not a run of steps",
            why=worded("it is one checkpoint, and {steps} takes steps that stand side by side"),
            fix=worded(
                "name the directory that holds the steps as {with: RUN}, or name checkpoints without {steps}"
            ),
            field="steps",
        )
    own = None if named else scene.source.step
    numbers = named_steps(steps, run.steps, run.step_formats)
    chosen = {number: run.steps[number] for number in numbers}
    found = [address for number, address in chosen.items() if number != own]
    if not found:
        raise PlanError(
            f"no step but {own}, the source itself, lies in {steps}",
            why=f"the run has these steps: {', '.join(map(str, run.steps))}",
            fix="give a range that holds some of the others",
            field="steps",
        )
    return found


def refuse_unclear(named: Sequence[str], steps: str) -> None:
    """See that checkpoints are named, or ``steps`` of one run.

    Raises:
        PlanError: neither is, or steps of several checkpoints.
    """
    if not steps and not named:
        raise PlanError(
            "`average` has only one member",
            why=worded("neither {with} nor {steps} names another checkpoint"),
            fix=worded(
                "name one as {with: runs/other}, or a range of this run's steps as {steps: 100..500}"
            ),
            field="with",
        )
    if steps and len(named) > 1:
        raise PlanError(
            worded(
                "{steps} takes the steps of one run, and {with} names {} checkpoints", len(named)
            ),
            fix="name the run alone, or name each step: `run@100`, `run@200`",
            field="steps",
        )


def refuse_repeated(
    others: Sequence[Member], scene: States, *, is_edited: bool, is_base: bool = False
) -> None:
    """See that no checkpoint counts twice: that is more often a slip than a weight.

    ``is_base``: the source is what differences are taken from, and has no weight.
    ``is_edited``: earlier edits of the plan have changed leaves of the source that are averaged, which makes the
    stored source another member.

    Raises:
        PlanError: a checkpoint stands twice, whatever the paths that lead to it.
    """
    gathering = Gathering()
    said: set[frozenset[str]] = set()
    kept = [] if is_edited else [Member(SOURCE, "", scene.source, scene.source.tree)]
    for member in others:
        double = [m for m in kept if not m.source.places.isdisjoint(member.source.places)]
        if not double:
            kept.append(member)
        if not double or member.source.places in said:
            continue
        said.add(member.source.places)
        with gathering.catching(field="with"):
            raise _repeated(member, double[0], is_base=is_base)
    gathering.raise_if_any()


def _repeated(member: Member, double: Member, *, is_base: bool) -> PlanError:
    address = member.source.address
    if double.name == SOURCE and is_base:
        return PlanError(
            f"'{address}' is the source, which is the base",
            why="its difference from itself is nothing",
            fix=worded("leave it out of {with}"),
        )
    fix = "name it once"
    if double.name == SOURCE:
        what = f"'{address}' would count twice: it is the source"
        why = "the checkpoint that is edited is the first member in any case"
        fix = worded(
            "leave it out ({steps} without {with} are those of the source's own run, the source left out)"
        )
    else:
        what = f"'{address}' stands twice among the members"
        texts = dict.fromkeys(m.text for m in (double, member))
        why = f"it is named as {' and as '.join(map(repr, texts))}" if len(texts) > 1 else ""
    return PlanError(
        what,
        why=why,
        fix=worded(
            "{}; to count it double give it a weight of 2, with one weight for each member in {weights}",
            fix,
        ),
    )


def refuse_lacking(named: Sequence[LeafPath], others: Sequence[Member], draft: Draft) -> None:
    """See that the members have the leaves that are averaged; where a few are missing, each is spoken of by itself.

    Raises:
        PlanError: a member lacks many of them, such as the whole optimizer state.
    """
    gathering = Gathering()
    for member in others:
        lacking = [path for path in named if path not in member.tree]
        if lacking:
            texts = set(member.tree.texts.values())
            lacking = [path for path in lacking if draft.texts[path] not in texts]
        if len(lacking) > _MOST_ALIKE:
            with gathering.catching(field="with"):
                raise _lacks(member, lacking, len(named), draft)
    gathering.raise_if_any()


def _lacks(member: Member, lacking: list[LeafPath], count: int, draft: Draft) -> PlanError:
    first, last = lacking[0], lacking[-1]
    fix = worded("name the leaves that all members have, or leave the others out with {except}")
    if all(in_optimizer_state(path, draft) for path in lacking):
        params = next((str(slot.root) for slot in draft.slots.values() if slot.root), "params")
        fix = worded(
            "it has no such optimizer state: average the params alone, {at: {}}: {}",
            params,
            FOLLOWING,
        )
    return PlanError(
        f"'{member.text}' has {count - len(lacking)} of the {count} leaves",
        why=f"{len(lacking)} are missing, from '{first}' to '{last}'",
        fix=fix,
    )


def members_note(
    others: Sequence[Member], weights: Sequence[Layered], steps: str, scene: States
) -> Note:
    """For the preview: who the members are, in the order of the weights."""
    kind = Consequence if _is_outside(others, steps, scene) else Remark
    names = member_names(others, steps, scene)
    if weights:
        shown = [
            f"{name} × {shown_layered(weight)}" for name, weight in zip(names, weights, strict=True)
        ]
        return kind(
            DocsPage.AVERAGES, f"members of the average, with their weights: {', '.join(shown)}"
        )
    return kind(
        DocsPage.AVERAGES,
        f"{len(names)} members of the average, of equal weight: {listed(names, MOST_NAMED)}",
    )


def copies_notes(others: Sequence[Member], steps: str, scene: States) -> list[Consequence]:
    """About members that are copies of one another, as far as metadata shows."""
    sources = [scene.source, *(member.source for member in others)]
    alike: dict[str, list[str]] = {}
    for name, source in zip(member_names(others, steps, scene), sources, strict=True):
        alike.setdefault(source.fingerprint, []).append(name)
    copies = [" and ".join(names) for names in alike.values() if len(names) > 1]
    said = f"some members are copies of one another, and each of them counts: {', '.join(copies)}"
    return [Consequence(DocsPage.AVERAGES, said)] if copies else []


def left_out_notes(others: Sequence[Member], edit: Operation, draft: Draft) -> list[Consequence]:
    """About leaves that an edit names and only other members have: the result has the leaves of the source."""
    alone = {
        f"'{member.text}'": [
            path
            for path in named_elsewhere(edit, member.tree)
            if path not in draft.leaves and is_numeric(member.tree[path])
        ]
        for member in others
    }
    quoted = partial(listed, most=_MOST_ALIKE, mark="'")
    each = [f"{who} {quoted(paths)}" for who, paths in alone.items() if paths]
    said = f"members have leaves that the source lacks, and that are left out: {listed(each, _MOST_ALIKE)}"
    return [Consequence(DocsPage.AVERAGES, said)] if each else []


def member_names(others: Sequence[Member], steps: str, scene: States) -> list[str]:
    """All members in the order of the weights: steps of the own run, or as much of their paths as tells them apart.

    Of a source that lies outside of the range of ``steps``, a member in any case, that is said.
    """
    source = scene.source
    if _are_own_steps(others, scene):
        names = [f"step {source.step}", *(f"step {member.source.step}" for member in others)]
        is_outside = _is_outside(others, steps, scene)
        names[0] += f" (the source, though outside of {steps})" if is_outside else " (the source)"
        return names
    addresses = [source.address, *(member.source.address for member in others)]
    names = [f"'{name}'" for name in short_names(addresses)]
    names[0] += " (the source)"
    return names


def _are_own_steps(others: Sequence[Member], scene: States) -> bool:
    """True if all members are steps of the run that is edited."""
    own_steps = set(scene.source.steps.values())
    return all(member.source.address in own_steps for member in others)


def _is_outside(others: Sequence[Member], steps: str, scene: States) -> bool:
    """True if the source is a step of the run that ``steps`` is about, and not one of them."""
    source = scene.source
    is_ranged = bool(steps) and _are_own_steps(others, scene)
    return is_ranged and source.step not in named_steps(steps, source.steps, source.step_formats)


def short_names(paths: Sequence[str]) -> list[str]:
    """As much of each path, counted from its end, as tells all of them apart.

    >>> short_names(["/runs/a/ckpt@5", "/runs/b/ckpt@5"]), short_names(["/soup/m1", "/soup/m2"])
    (['a/ckpt@5', 'b/ckpt@5'], ['m1', 'm2'])
    """
    split = [path.strip("/").split("/") for path in paths]
    for count in range(1, max(map(len, split))):
        names = ["/".join(parts[-count:]) for parts in split]
        if len(set(names)) == len(names):
            return names
    return list(paths)
