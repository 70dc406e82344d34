"""Verify against digests: the value of every leaf, every sealed file, and what can be told of metadata without any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from surgery_cli import reports
from surgery_cli.draft.seen import NonFinite
from surgery_cli.engine.progress import Listener
from surgery_cli.proof.metadata_files import copy_notes, metadata_faults, restore_notes
from surgery_cli.proof.sealed_files import present_files, unsealed_folders
from surgery_cli.proof.sharding_file import device_notes
from surgery_cli.proof.side_values import Counted, SideValues, has_side_values
from surgery_cli.script.user_code import Say
from surgery_cli.settings.sample import Sample
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.expected_digests import Expected
from surgery_cli.surgery.file_checks import ADDED_FOLDER, file_findings
from surgery_cli.surgery.leaf_checks import LeafChecks
from surgery_cli.surgery.leaf_names import containers_of, document_names, spellings
from surgery_cli.surgery.sampling import drawn, everything
from surgery_cli.tree.specs import other_containers
from surgery_cli.words.lists import listed, quoted
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage

_NOT_SEALED: Final = Remark(
    DocsPage.CHECKED_BY_VERIFY,
    "no file has a digest: metadata was held against itself, other files and dead bytes against nothing;"
    " `surgery seal` records digests of all leaves and files",
)
_SIDE_VALUES_UNREAD: Final = Remark(
    DocsPage.CHECKED_BY_VERIFY,
    "arrays and random keys beside the trees of leaves were not read: without `--sample` they are",
)
_MOST_NAMED: Final = 10


def check_bytes(
    checkpoint: Checkpoint,
    expected: Expected,
    *,
    allow_non_finite: bool,
    memory_bytes: int,
    listener: Listener | None,
    say: Say,
    sample: Sample | None = None,
    seed: int | None = None,
) -> reports.Verdict:
    """Read every leaf, and every file of a seal, and say what differs and what nothing could be held against.

    With a ``sample``, read that part of them. Names of files, and metadata, are looked at all the same.
    """
    files = _files(checkpoint, expected)
    if sample is None:
        chosen = everything(checkpoint, files, expected)
    else:
        chosen = drawn(checkpoint, files, expected, sample, seed)
    seen = LeafChecks(checkpoint, expected)
    seen.read(chosen.leaves, memory_bytes, listener, say)
    findings = [*expected.damage, *_metadata_findings(checkpoint), *seen.findings]
    findings += _container_findings(checkpoint, expected)
    notes = device_notes(checkpoint) + restore_notes(checkpoint) + copy_notes(checkpoint)
    beside = SideValues(checkpoint if sample is None else None, memory_bytes)
    counts = _counted(checkpoint, seen.non_finite) | beside.counts
    infinite = {text: n for text, one in counts.items() if (n := one.non_finite.infinite)}
    findings += [] if allow_non_finite else _nan_findings(counts)
    if allow_non_finite:
        notes += _named("NaN", {text: one.non_finite.nan for text, one in counts.items()})
    notes += _named("infinite values", infinite)
    of_files = file_findings(files, chosen.files, expected, listener) or [*expected.seen]
    notes += _doubts(expected, seen, of_files)
    findings += of_files + _folder_findings(checkpoint, expected)
    findings += _item_findings(beside)
    if sample is not None and has_side_values(checkpoint):
        notes.append(_SIDE_VALUES_UNREAD)
    if not findings:
        notes += _unsealed_notes(expected)
    return reports.Verdict(
        checkpoint=str(checkpoint.location.root),
        named_step=checkpoint.location.named_step,
        address=checkpoint.location.address,
        against=expected.source,
        agrees=not findings,
        findings=findings,
        checked=seen.checked,
        unchecked=len(checkpoint.tree) - seen.checked,
        agreeing=seen.agreeing,
        not_checked=seen.not_checked,
        files_checked=len(expected.files) if chosen.sampled is None else chosen.sampled.files,
        files_agreeing=sorted(chosen.whole_files - {found.path for found in of_files}),
        infinities=infinite,
        reads_values=True,
        has_lost_digests=bool(expected.damage),
        sample=chosen.sampled,
        notes=notes,
        spellings=spellings(document_names(checkpoint.tree.texts)),
    )


def _doubts(
    expected: Expected, seen: LeafChecks, of_files: Sequence[reports.Finding]
) -> list[Note]:
    """What is said where something is not as on record, which may be of what stood there before."""
    is_said = expected.doubt and (seen.differs or of_files)
    return [Consequence(DocsPage.CHECKED_BY_VERIFY, expected.doubt)] if is_said else []


def _files(checkpoint: Checkpoint, expected: Expected) -> Mapping[str, Path]:
    """The files that are there, where they are held against a seal."""
    if not expected.files:
        return {}
    return present_files(checkpoint, expected.files, expected.sealed_within)


def _unsealed_notes(expected: Expected) -> list[Remark]:
    """Of which files nothing was held against a digest."""
    if not expected.files:
        return [_NOT_SEALED]
    if "" in expected.sealed_within:
        return []
    alone = quoted((front.removesuffix("/") for front in expected.sealed_within), _MOST_NAMED)
    said = f"of files, digests are on record of those in {alone} alone; `surgery seal` records them of all"
    return [Remark(DocsPage.CHECKED_BY_VERIFY, said)]


def _metadata_findings(checkpoint: Checkpoint) -> list[reports.Finding]:
    return [
        reports.Finding(file, "metadata", reports.Subject.FILE, detail=detail)
        for file, detail in metadata_faults(checkpoint)
    ]


def _item_findings(beside: SideValues) -> list[reports.Finding]:
    return [
        reports.Finding(name, "item unreadable", reports.Subject.ITEM, detail=why)
        for name, why in beside.faults
    ]


def _folder_findings(checkpoint: Checkpoint, expected: Expected) -> list[reports.Finding]:
    """A seal knows no folders: one that Orbax takes for an item, and that has no file of the seal, is not sealed."""
    is_whole = bool(expected.files) and "" in expected.sealed_within
    folders = unsealed_folders(checkpoint, expected.files) if is_whole else []
    return [reports.Finding(name, ADDED_FOLDER, reports.Subject.FILE) for name in folders]


def _container_findings(checkpoint: Checkpoint, expected: Expected) -> Iterator[reports.Finding]:
    """Nodes that print the same leaves and are another container: a restore into the other side's tree fails."""
    if expected.containers is None or containers_of(checkpoint, ()) is None:
        return
    known = [path for path in checkpoint.tree if expected.key_of(path) in expected.digests]
    for node, here, there in other_containers(known, expected.containers):
        yield reports.Finding(
            str(node) or ".", "container", reports.Subject.NODE, here=here, there=there
        )


def _counted(checkpoint: Checkpoint, counts: Mapping[str, NonFinite]) -> dict[str, Counted]:
    """``counts`` of leaves with their sizes, in the order of the tree."""
    return {
        text: Counted(checkpoint.tree[path].size, counts[text])
        for path, text in document_names(checkpoint.tree.texts).items()
        if text in counts
    }


def _nan_findings(counts: Mapping[str, Counted]) -> Iterable[reports.Finding]:
    for text, (size, found) in counts.items():
        if found.nan:
            detail = f"{found.nan:,} of {size:,} values are NaN"
            fix = "`--allow-non-finite` passes them, where they are meant"
            yield reports.Finding(text, "NaN", detail=detail, fix=fix)


def _named(what: str, counts: Mapping[str, int]) -> list[Note]:
    """A note that names the leaves that have some."""
    named = [f"'{text}' ({count:,})" for text, count in counts.items() if count]
    if not named:
        return []
    return [Consequence(DocsPage.CHECKED_BY_VERIFY, f"{what} in {listed(named, _MOST_NAMED)}")]
