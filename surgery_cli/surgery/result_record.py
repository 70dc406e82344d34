"""The record of a result: what was asked for, what it was made of, and what was proved of it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET

from surgery_cli import reports
from surgery_cli.engine.digests import LeafDigest
from surgery_cli.inputs.buckets import path_at
from surgery_cli.proof.new_records import about
from surgery_cli.proof.record_parts import Verified
from surgery_cli.proof.records import history_after
from surgery_cli.proof.surgery_json import Record, new_record
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.gate import Passed
from surgery_cli.surgery.run import Run
from surgery_cli.surgery.settings_on_record import settings_on_record
from surgery_cli.surgery.state_kinds import settled_after
from surgery_cli.surgery.what_stands import files_standing


def record_of(
    run: Run,
    digests: Mapping[str, LeafDigest],
    report: reports.Report,
    written: Checkpoint,
    probed: Passed | None,
) -> Record:
    """What ``surgery.json`` says of this run; the source's own record goes into the history."""
    checkpoint, draft = run.prepared.checkpoint, run.prepared.draft
    assert run.preview is not None
    assert run.preview.destination is not None
    source, address = str(checkpoint.location.root), checkpoint.address_of(run.options.item)
    return new_record(
        source=source,
        source_fingerprint=checkpoint.fingerprint,
        address=UNSET if address == source else address,
        donors=run.prepared.donors,
        **about(checkpoint, written, path_at(run.preview.destination)),
        draft=draft.digest,
        plan=run.prepared.functions.pinned(run.plan).document(),
        settings=settings_on_record(run.options),
        inputs=run.inputs,
        stands=files_standing(written) if run.options.resume else UNSET,
        original=run.prepared.inverse.original or UNSET,
        inverse=UNSET
        if run.prepared.is_export
        else run.prepared.inverse.document(address, run.plan.params),
        leaves=report.leaves,
        removed=report.removed,
        notes=list(map(str, draft.notes)),
        assumptions=report.assumptions,
        checks=report.checks,
        slots=[] if run.prepared.is_export else settled_after(checkpoint, written, draft),
        verified=Verified(
            structure=len(draft.leaves),
            read_back=report.checked,
            sources_checked=report.sources_checked,
            probe=probed.note if probed else UNSET,
        ),
        digests=dict(digests),
        history=history_after(checkpoint, digests),
    )
