"""The command `verify`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from surgery_cli.console.arguments import Checkpoint, Output
from surgery_cli.console.formats.files import (
    HtmlTo,
    OutputTo,
    failures_written,
    output_files,
    write_files,
)
from surgery_cli.console.printing import print_report, progress, saying
from surgery_cli.inputs.addresses import address, checkpoint_address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.sample import SampleSeed, SampleText
from surgery_cli.settings.shared import MEMORY_BYTES, Item, LikeInit, Memory, Step

_Like = Annotated[
    str | None,
    setting(
        "Compare structure, shapes and dtypes with OTHER; no values.",
        Group.CHECK,
        "OTHER",
        checkpoint_address,
    ),
]


def verify(
    checkpoint: Checkpoint,
    *,
    like: _Like = None,
    like_init: LikeInit = None,
    like_manifest: Annotated[
        str | None,
        setting(
            "Check against the digests in FILE, from `seal --to` or `inspect --digests --json`.",
            Group.CHECK,
            "FILE",
            address,
        ),
    ] = None,
    sample: SampleText = None,
    seed: SampleSeed = None,
    strict: Annotated[
        bool, setting("Exit with 1 also if a leaf has no digest on record.", Group.CHECK)
    ] = False,
    allow_non_finite: Annotated[
        bool, setting("NaN and infinities are no finding.", Group.CHECK)
    ] = False,
    step: Step = None,
    item: Item = None,
    memory_bytes: Memory = MEMORY_BYTES,
    output_to: OutputTo = (),
    html: HtmlTo = None,
    output: Output,
) -> int:
    """Read every byte and check it against the digests on record; exit code 1 on a finding."""
    from msgspec.structs import replace

    from surgery_cli import surgery
    from surgery_cli.cli.rendering import verdict

    files = output_files(output_to, html, "verify", checkpoint, like, like_manifest)
    with failures_written(files), progress(output) as listener:
        found = surgery.verify(
            checkpoint,
            step=step,
            item=item,
            like=like,
            like_init=like_init,
            like_manifest=None if like_manifest is None else path_at(like_manifest),
            sample=sample,
            seed=seed,
            allow_non_finite=allow_non_finite,
            memory_bytes=memory_bytes,
            listener=listener,
            say=saying(output),
        )
    found = replace(found, strict=strict)
    render = partial(verdict.render, strict=strict, verbose=output.verbose)
    write_files(found, files, render)
    is_good = found.agrees and not (strict and found.without_digest)
    print_report(found, output, render, is_good=is_good)
    return 0 if is_good else 1
