"""What every process but the first writes of the new checkpoint on many hosts, and reads back."""

from __future__ import annotations

from surgery_cli.proof.result import open_result, read_back
from surgery_cli.store import filesystem
from surgery_cli.surgery.expected_reads import expect_reads
from surgery_cli.surgery.item_of_result import item_of_result
from surgery_cli.surgery.run import Run, shared_execution_of, shared_step_writer
from surgery_cli.surgery.source_and_destination import check_unchanged


def write_share(run: Run) -> None:
    """As ``write``, in a process that only makes its share of the values: where the first one builds.

    Raises:
        SurgeryError: what ``write`` raises, as far as it concerns the share.
    """
    company, draft = run.company, run.prepared.draft
    assert company is not None
    directory = company.wait_for_place()
    writer, execution = shared_step_writer(run, directory), shared_execution_of(run, None)
    expect_reads(run.prepared)
    writer.begin()
    done = company.take_part(execution, writer)
    check_unchanged(run.prepared)
    filesystem.forget(directory)
    written = open_result(
        directory,
        item=item_of_result(run.prepared, run.options.item),
        prefix_items=draft.items.is_prefixed,
    )
    read_back(written, done, run.memory_bytes, None)
    company.has_read_back()
