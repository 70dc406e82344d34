"""A result in a format of other programs: what it is made of, where it may stand, and which files it will be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from surgery_cli import reports
from surgery_cli.draft.recipe import Draft
from surgery_cli.draft.settings import check_finite
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning import Plan
from surgery_cli.settings.declaration import given
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.export.companions import companion_notes, companions
from surgery_cli.store.export.contract import NewFile
from surgery_cli.store.export.leaves import exported
from surgery_cli.store.export.table import FORMATS
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.write.item_plan import ItemPlan
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import byte_text, counted

_WITHOUT_MEANING: Final = {
    "as_step": "a file has no steps",
    "metrics": "a file has no metrics beside it",
    "link": "every value is written anew, and no file is shared",
    "compact": "every value is written anew",
    "resume": "what was done of such files is not kept",
    "distributed": "such files are written by one process, from their begin to their end",
    "probe": "names and kinds in there are not those of your model's tree",
}
"""Options that say nothing of such a result, or that it does not know, and why."""

_MOST_NAMED: Final = 4


def refuse_settings(plan: Plan, options: Options) -> None:
    """Refuse what cannot be said of a result in another format.

    Raises:
        PlanError: all of it at once.
    """
    if plan.output is None:
        return
    _ = plan.output.shard_bytes
    _check_scale(plan.output)
    said = given(options)
    problems = [
        Problem(
            f"`{declared.option}` says nothing of {plan.output.format}",
            why=_WITHOUT_MEANING[name],
            fix="leave it out, or write a checkpoint first and export that",
            field=name,
        )
        for name, declared in said.items()
        if name in _WITHOUT_MEANING
    ]
    if plan.reshard is not None:
        problems.append(
            Problem(
                "a plan says either `reshard` or `output`",
                why=f"{plan.output.format} has neither chunks nor shardings",
                fix="leave one of them out",
                field="reshard",
            )
        )
    raise_all(problems)


def _check_scale(output: Export) -> None:
    """See that one thing says by what the product of a LoRA is multiplied, of an adapter alone.

    Raises:
        PlanError: nothing does, or two do.
    """
    given = [name for name in ("scale", "alpha") if getattr(output, name) is not None]
    if output.format != "peft":
        raise_all(
            Problem(
                f"`{name}` says nothing of {output.format}",
                why="by what A·B is multiplied is said in adapters of PEFT's",
                fix="leave it out, or write `peft`",
                field=name,
            )
            for name in given
        )
        return
    for name in given:
        check_finite(getattr(output, name), name)
    if len(given) != 1:
        raise PlanError(
            worded("{scale} and {alpha} both say by what A·B is multiplied")
            if given
            else "nothing says by what A·B is multiplied",
            why="PEFT multiplies by alpha / r",
            fix=worded(
                "say one of them: {scale: 1} (`nnx.LoRA`, and what `extract-lora` makes), or {alpha: 16}"
            ),
            field="output",
        )


def in_format(draft: Draft, checkpoint: Checkpoint, plan: Plan) -> Draft:
    """The draft as it is written in the format that the plan asks for.

    Raises:
        PlanError: all leaves that the format has no place for.
    """
    assert plan.output is not None
    if not plan.edits:  # nobody has looked for optimizer state yet
        known = survey(checkpoint.tree, params=plan.params, slots=plan.slots)
        draft = draft.replaced(slots=known.slots)
    return exported(draft, FORMATS[plan.output.format], plan.output)


def check_called(target: Path, plan: Plan) -> None:
    """See that a result of that format can be called so.

    Raises:
        PlanError: it is called like something else.
    """
    if plan.output is not None:
        FORMATS[plan.output.format].check_destination(target, plan.output)


def beside_notes(
    checkpoint: Checkpoint, draft: Draft, output: Export, target: Path | None
) -> list[Note]:
    """What becomes of all that stands beside the tree in the source."""
    found = companions(checkpoint, output, target)
    return [*_left_behind_notes(checkpoint), *companion_notes(found, draft)]


def _left_behind_notes(checkpoint: Checkpoint) -> list[Consequence]:
    """What stands beside the tree in the source, and has no place in files of arrays."""
    location = checkpoint.location
    others = [*location.other_items, *(path.name for path in location.foreign)]
    others += [path.name for path in location.root_files]
    if not others:
        return []
    stays = counted(len(others), "thing beside them stays", "things beside them stay")
    return [
        Consequence(
            DocsPage.EXPORT,
            f"only leaves are written: {stays} behind ({quoted(others, _MOST_NAMED)})",
        )
    ]


def export_document(
    checkpoint: Checkpoint,
    plans: Mapping[str, ItemPlan],
    output: Export,
    destination: Path | None,
) -> reports.Exported:
    """The files that will be there."""
    (item,) = plans.values()
    target = destination or Path("result")
    files = FORMATS[output.format].new_files(item, target, output)
    carried = companions(checkpoint, output, destination).carried
    beside = [NewFile(file.name, 0, filesystem.size(file)) for file in carried]
    return reports.Exported(
        format=output.format,
        files=[
            reports.ExportedFile(
                name=file.name or target.name, leaves=file.leaves, bytes=file.bytes
            )
            for file in files + beside
        ],
    )


def export_reason(found: reports.Exported) -> str:
    """What is written, in a phrase."""
    files = counted(len(found.files), "file")
    return f"{files} of {found.format}, {byte_text(sum(file.bytes for file in found.files))}"
