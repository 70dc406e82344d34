"""The commands that are no single edit: look at a checkpoint, plan, apply, compare, verify."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from surgery_cli.cli.formats.files import OutputTo, output_files, write_files
from surgery_cli.cli.option_groups import taking
from surgery_cli.cli.option_values import settings_of, tolerance_of
from surgery_cli.cli.options import (
    Checkpoint,
    CheckpointA,
    CheckpointB,
    Destination,
    DryRun,
    Item,
    LikeInit,
    Output,
    Params,
    Patterns,
    PlanFile,
    Settings,
    Source,
    Step,
    drafting,
    output,
    read_address,
    written_address,
)
from surgery_cli.cli.printing import print_document, print_json, print_report, progress, saying
from surgery_cli.inputs.addresses import LocalAddress, local_address

if TYPE_CHECKING:
    from surgery_cli.plan import Plan
    from surgery_cli.reports import Preview
    from surgery_cli.surgery import Options

Said = TypeVar("Said", bound="Preview")


@taking(output=output)
def inspect(
    checkpoint: Checkpoint,
    at: Patterns = None,
    *,
    depth: Annotated[
        int | None, typer.Option("--depth", metavar="N", min=1, help="Fold below N keys.")
    ] = None,
    stats: Annotated[
        bool, typer.Option("--stats", help="Read every value: mean, std, range, norm, histogram.")
    ] = False,
    digests: Annotated[
        bool, typer.Option("--digests", help="Read every value: a digest per leaf.")
    ] = False,
    optimizer: Annotated[
        bool, typer.Option("--optimizer", help="Name the twins and clocks of the optimizer state.")
    ] = False,
    step: Step = None,
    item: Item = None,
    params: Params = None,
    output: Output,
) -> int:
    """Show what is in a checkpoint: its tree, with shapes, dtypes and bytes.

    Only metadata is read, unless values are asked for with `--stats` or `--digests`.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import inspection

    with progress(output) as listener:
        found = surgery.inspect(
            checkpoint,
            tuple(at or ()),
            step=step,
            item=item,
            params=params,
            stats=stats,
            digests=digests,
            optimizer=optimizer,
            listener=listener,
        )
    print_document(found, output, partial(inspection.render, depth=depth))
    return 0


@taking(draft=drafting, output=output)
def plan(
    source: Source,
    plan: PlanFile,
    *,
    to: Annotated[
        LocalAddress | None,
        typer.Option(
            "--to",
            parser=written_address,
            metavar="DST",
            help="Check that DST can be written, too.",
        ),
    ] = None,
    set: Settings = None,
    draft: Options,
    output: Output,
) -> int:
    """Show what `apply` would do; nothing is written and no tensor is read.

    It takes the options of `apply`, so that one can stand in for the other.
    """
    from surgery_cli import surgery

    read = _read_plan(plan, set)
    found = surgery.plan(source, read, destination=to, options=draft, say=saying(output))
    _print_preview(found, output)
    return 0


@taking(draft=drafting, output=output)
def apply(
    source: Source,
    destination: Destination,
    plan: PlanFile,
    *,
    expected: Annotated[
        str | None,
        typer.Option(
            "--draft", metavar="sha256:...", help="Refuse if the draft is not the one previewed."
        ),
    ] = None,
    set: Settings = None,
    dry_run: DryRun = False,
    draft: Options,
    output: Output,
) -> int:
    """Write a new checkpoint: the source with a plan applied, verified before it appears."""
    import msgspec

    if expected is not None:
        draft = msgspec.structs.replace(draft, expected_draft=expected)
    read = _read_plan(plan, set)
    return run_plan(source, destination, read, draft, output, dry_run=dry_run)


@taking(draft=drafting, output=output)
def compact(
    source: Source,
    destination: Destination,
    *,
    dry_run: DryRun = False,
    draft: Options,
    output: Output,
) -> int:
    """Write a copy without dead bytes: what edits have left in data files, and nothing refers to.

    `inspect` says how many there are. Encoded bytes are copied as they are; no value changes.
    """
    import msgspec

    from surgery_cli.errors import PlanError
    from surgery_cli.plan import plan_of

    if draft.compact == "never":
        raise PlanError(
            "`compact` writes a fresh store, and `--compact never` forbids one",
            fix="leave `--compact` out; `surgery apply` takes it",
        )
    draft = msgspec.structs.replace(draft, compact="always")
    return run_plan(source, destination, plan_of([]), draft, output, dry_run=dry_run)


def _read_plan(file: str, settings: list[str] | None) -> Plan:
    from surgery_cli.plan import read_plan

    return read_plan(file, settings=settings_of(settings))


def run_plan(
    source: str,
    destination: str,
    plan: Plan,
    options: Options,
    output: Output,
    *,
    dry_run: bool,
    reworded: Callable[[str], str] = str,
) -> int:
    """Apply a plan, or with ``dry_run`` print what that would do; the notes as ``reworded`` puts them."""
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import preview

    if dry_run:
        found = surgery.plan(
            source, plan, destination=destination, options=options, say=saying(output)
        )
        _print_preview(_said(found, reworded), output)
        return 0
    with progress(output) as listener:
        report = surgery.apply(
            source, destination, plan, options=options, listener=listener, say=saying(output)
        )
    report = _said(report, reworded)
    print_report(
        report,
        output,
        partial(preview.render, verbose=output.verbose),
        consequences=report.consequences,
        assumptions=report.assumptions,
    )
    return 0


def _said(document: Said, reworded: Callable[[str], str]) -> Said:
    """The document with its notes as ``reworded`` puts them."""
    import msgspec

    return msgspec.structs.replace(
        document,
        notes=list(map(reworded, document.notes)),
        consequences=list(map(reworded, document.consequences)),
    )


def _print_preview(document: object, output: Output) -> None:
    from surgery_cli.cli.rendering import preview

    print_document(document, output, partial(preview.render, verbose=output.verbose))


@taking(output=output)
def diff(
    a: CheckpointA,
    b: CheckpointB,
    at: Patterns = None,
    *,
    structure: Annotated[
        bool, typer.Option("--structure", help="Compare paths, kinds, shapes and dtypes only.")
    ] = False,
    rtol: Annotated[
        float, typer.Option("--rtol", metavar="X", parser=tolerance_of, help="Relative tolerance.")
    ] = 0.0,
    atol: Annotated[
        float, typer.Option("--atol", metavar="X", parser=tolerance_of, help="Absolute tolerance.")
    ] = 0.0,
    step: Step = None,
    item: Item = None,
    output_to: OutputTo = None,
    output: Output,
) -> int:
    """Compare structure and values of two checkpoints; exit code 1 if they differ.

    NaN equals NaN. Leaves that refer to the same stored bytes are not read.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import difference

    files = output_files(output_to, "diff", a, b)
    with progress(output) as listener:
        found = surgery.diff(
            a,
            b,
            tuple(at or ()),
            step=step,
            item=item,
            structure=structure,
            rtol=rtol,
            atol=atol,
            listener=listener,
        )
    write_files(found, files)
    if output.json or not output.quiet:
        print_document(found, output, partial(difference.render, verbose=output.verbose))
    return 1 if found.only_in_a or found.only_in_b or found.changed else 0


@taking(output=output)
def verify(
    checkpoint: Checkpoint,
    *,
    like: Annotated[
        LocalAddress | None,
        typer.Option(
            "--like",
            parser=read_address,
            metavar="OTHER",
            help="Compare structure and dtypes with OTHER.",
        ),
    ] = None,
    like_init: LikeInit = None,
    like_manifest: Annotated[
        LocalAddress | None,
        typer.Option(
            "--like-manifest",
            parser=local_address,
            metavar="FILE",
            help="Compare with `inspect --digests --json`.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Leaves without a digest on record are a failure.")
    ] = False,
    allow_non_finite: Annotated[
        bool, typer.Option("--allow-non-finite", help="NaN is no finding.")
    ] = False,
    step: Step = None,
    item: Item = None,
    output_to: OutputTo = None,
    output: Output,
) -> int:
    """Read every byte and check it against the digests on record; exit code 1 on a finding."""
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import verdict

    files = output_files(output_to, "verify", checkpoint, *([like] if like else []))
    with progress(output) as listener:
        found = surgery.verify(
            checkpoint,
            step=step,
            item=item,
            like=like,
            like_init=like_init,
            like_manifest=None if like_manifest is None else Path(like_manifest),
            allow_non_finite=allow_non_finite,
            listener=listener,
            say=saying(output),
        )
    write_files(found, files)
    if output.json or not output.quiet:
        print_document(found, output, partial(verdict.render, strict=strict))
    return 0 if found.agrees and not (strict and found.unchecked) else 1


@taking(output=output)
def seal(
    checkpoint: Checkpoint,
    *,
    to: Annotated[
        LocalAddress | None,
        typer.Option(
            "--to",
            parser=written_address,
            metavar="FILE",
            help="Write the record there, not into CKPT.",
        ),
    ] = None,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Record what is there, where an earlier digest does not hold."),
    ] = False,
    step: Step = None,
    item: Item = None,
    output: Output,
) -> int:
    """Record digests of all leaves and of every file: `verify` then finds every change of any byte.

    One file is added or replaced, and no data is touched: `surgery.json` beside the data, or `--to FILE`.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import seal

    with progress(output) as listener:
        found = surgery.seal(
            checkpoint,
            step=step,
            item=item,
            to=None if to is None else Path(to),
            anew=anew,
            listener=listener,
        )
    print_report(found, output, seal.render, consequences=found.notes)
    return 0


def show_operations(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One operation, with all its fields.")
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """List the operations, or the fields and an example of one."""
    from surgery_cli.cli.rendering import operations
    from surgery_cli.cli.rendering.page import page_on

    described = operations.described(name)
    if json:
        print_json({"schema_version": 1, "operations": described})
    else:
        operations.render(described, page_on(sys.stdout), is_whole=name is not None)
    return 0


def print_schema() -> int:
    """Print the JSON Schema of the plan file, for editors."""
    from surgery_cli.plan import schema

    print_json(schema())
    return 0
