"""The command `plan`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from surgery_cli.console.arguments import OptionalPlanFile, Output, Source
from surgery_cli.console.formats.files import (
    HtmlTo,
    failures_written,
    output_files,
    write_files,
)
from surgery_cli.console.printing import (
    print_aside,
    print_assumed,
    print_document,
    print_json,
    print_text,
    progress,
    saying,
)
from surgery_cli.errors import PlanError
from surgery_cli.inputs.addresses import destination_address
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import Variables
from surgery_cli.words.lists import quoted

if TYPE_CHECKING:
    from surgery_cli.console.page import Page
    from surgery_cli.reports import InversePlan


def plan(
    source: Source,
    plan: OptionalPlanFile = None,
    *,
    set: Variables = None,
    destination: Annotated[
        str | None,
        setting(
            "Check, too, that DST can be written.",
            Group.WRITE,
            "DST",
            destination_address,
            option="--to",
        ),
    ] = None,
    inverse: Annotated[
        bool,
        setting(
            "Print the plan that undoes the run by which SRC was written, from its record, for `apply`.",
            Group.SHOW,
        ),
    ] = False,
    options: Options,
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Show what `apply` would do; nothing is written.

    Tensors are read only where values alone tell what becomes of optimizer state, few of them, and the preview counts
    them. It takes the options of `apply`, so that one can stand in for the other. With `--inverse` and no PLAN, it
    prints the plan that makes of SRC what it was made of, bit for bit.
    """
    from surgery_cli import surgery
    from surgery_cli.cli.rendering import preview
    from surgery_cli.planning import read_plan
    from surgery_cli.store.filesystem.small_files import read_anew

    if inverse != (plan is None):
        raise PlanError(
            "`--inverse` takes no plan" if inverse else "`plan` needs a plan",
            why="it prints one, from the record of SRC" if inverse else "",
            fix="`surgery plan SRC --inverse`" if inverse else "`surgery plan SRC PLAN`",
        )
    if plan is None:
        return _print_inverse(source, html, options, output)
    files = output_files((), html, "plan", source, plan, destination)
    with failures_written(files), progress(output):
        read = read_plan(plan, settings=set or {}, content=read_anew)
        found = surgery.plan(
            source, read, destination=destination, options=options, say=saying(output)
        )
    render = partial(preview.render, verbose=output.verbose)
    write_files(found, files, render)
    print_document(found, output, render)
    return 0


def _print_inverse(source: str, html: str | None, options: Options, output: Output) -> int:
    from surgery_cli import surgery
    from surgery_cli.planning import yaml_of

    if html is not None:
        raise PlanError(
            "`--inverse` prints a plan, and a plan is no page",
            fix="`surgery plan SRC PLAN --html FILE` shows what a plan does",
        )
    undoing = surgery.inverse(source, options=options)
    if output.json:
        print_json(undoing)
    else:
        print_text(yaml_of(undoing.plan))
        print_assumed(undoing, output)
        if undoing.not_brought_back:
            print_aside(undoing, _render_lacking)
    return 0


def _render_lacking(undoing: InversePlan, page: Page) -> None:
    """What the source has beside its trees, and the result will not have."""
    items = quoted(undoing.not_brought_back, 5)
    said = f"the plan does not bring back {items} of '{undoing.source}': no edit takes what is no tree of leaves"
    page.remarks("note", [said])
