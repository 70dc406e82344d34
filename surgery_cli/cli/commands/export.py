"""The command `export`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from surgery_cli.cli.commands.apply import run_plan
from surgery_cli.cli.options.patterns import Patterns
from surgery_cli.cli.rendering.spelling import in_options, said_in_options
from surgery_cli.console.arguments import Destination, Output, Source
from surgery_cli.console.formats.files import HtmlTo, failures_written, output_files
from surgery_cli.errors import PlanError
from surgery_cli.inputs.addresses import address
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.export import Export
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import DryRun, Variables

if TYPE_CHECKING:
    from surgery_cli.planning import Plan


def export(
    source: Source,
    destination: Destination,
    at: Patterns = None,
    *,
    except_: Annotated[
        tuple[str, ...],
        setting("Leaves that are not written; repeatable.", Group.EDIT, "TEXT", option="--except"),
    ] = (),
    plan: Annotated[
        str | None,
        setting("A plan whose edits come first.", Group.EDIT, "PLAN", address, option="--plan"),
    ] = None,
    set: Variables = None,
    dry_run: DryRun = False,
    export: Export,
    options: Options,
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Write the leaves in a format of other programs: safetensors, Flax's msgpack, NumPy's npz.

    All leaves are written, or those that AT names: Hugging Face's readers want `params` alone. In safetensors the keys
    of a path are joined by dots, so that a leaf of one key, as conversions make them, is called like that key. A DST
    that ends in `.safetensors` is one file; any other is a directory, with an index where it takes several files. npz
    joins keys by slashes; msgpack nests dicts, as Flax does. In a plan, `output: {format: safetensors}` does the same
    after its edits.
    """

    def planned() -> Plan:
        return _with_output(plan, set or {}, tuple(at or ()), except_, export)

    files = output_files((), html, "export", source, destination)
    with failures_written(files), said_in_options(Export):
        return run_plan(
            source,
            destination,
            planned,
            options,
            output,
            dry_run=dry_run,
            files=files,
            reworded=lambda text: in_options(text, Export),
        )


def _with_output(
    file: str | None,
    settings: dict[str, str],
    at: tuple[str, ...],
    except_: tuple[str, ...],
    request: Export,
) -> Plan:
    """The plan of a file, then all leaves but those that are named left out, then the format."""
    from surgery_cli.operations.keep import Keep
    from surgery_cli.planning import Plan, plan_of, read_plan
    from surgery_cli.store.filesystem.small_files import read_anew

    first = Plan()
    if file is not None:
        first = read_plan(file, settings=settings, content=read_anew)
    if first.output is not None:
        raise PlanError(
            f"'{file}' says by itself in which format the result is written",
            why="`--to` would say it again",
            fix="`surgery apply SRC DST PLAN`, or take `output` out of the plan",
            field="output",
        )
    kept = plan_of([Keep(at=at or "**", except_=except_)] if at or except_ else [])
    return msgspec.structs.replace(
        first,
        edits=(*first.edits, *kept.edits),
        origins=(*first.origins, *kept.origins),
        output=request,
    )
