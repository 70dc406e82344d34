"""Verify against digests: the value of every leaf, every sealed file, and what can be told of metadata without any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from surgery_cli import reports
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import LeafDigest, leaf_digest
from surgery_cli.engine.finite import NonFinite, count_non_finite
from surgery_cli.engine.forecast import reading_bytes
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.proof.files import file_digests, files_of
from surgery_cli.proof.metadata_files import metadata_faults
from surgery_cli.proof.records import (
    chosen_digests,
    read_record,
    record_key,
    record_path,
    recorded_place,
)
from surgery_cli.proof.sharding_file import device_notes
from surgery_cli.proof.surgery_json import Record, decoded
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.leaf_names import containers_of
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, TreeSpec
from surgery_cli.words.lists import listed

_NOT_SEALED: Final = (
    "no file has a digest: metadata was held against itself, other files and dead bytes against nothing;"
    " `surgery seal` records digests of all leaves and files"
)
_MOST_NAMED: Final = 10


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Digests that a checkpoint is held against, and where they stand."""

    source: str = "nothing: no digests are on record"
    digests: Mapping[str, LeafDigest] = {}
    key_of: Callable[[LeafPath], str] = lambda path: path.spelling
    """How ``digests`` name a leaf."""
    files: Mapping[str, str] = {}
    sorts: Mapping[str, str] = {}
    """What else is known of the leaves, as ``_sort`` says it."""
    containers: Mapping[str, str] | None = None
    """The nodes that are no dicts; None where nothing is known of nodes."""
    is_complete: bool = False
    """What the digests do not name is a finding."""


def on_record(checkpoint: Checkpoint) -> tuple[Expected, Sequence[reports.Finding]]:
    """The digests in the checkpoint's own record; damage of the record is a finding."""
    try:
        record = read_record(checkpoint)
    except CheckpointError as error:
        return Expected(), [_of_problem(record_path(checkpoint).name, "record", error)]
    if record is None:
        return Expected(), []
    return _recorded(checkpoint, record, record_path(checkpoint).name), []


def manifest(checkpoint: Checkpoint, path: Path) -> Expected:
    """The digests in a file: of ``seal --to``, or the document of ``inspect --digests --json``.

    Raises:
        PlanError: the file cannot be read, or is neither.
        CheckpointError: it is a record, and damaged.
    """
    refuse_special(path, PlanError)
    try:
        raw = filesystem.read(path)
        fields = decode_json(raw, type=dict[str, msgspec.Raw])
        if "digests" in fields:
            return _recorded(checkpoint, decoded(raw, path), str(path))
        found = decode_json(raw, type=_Manifest)
    except OSError as error:
        raise PlanError(
            f"the manifest '{path}' cannot be read", why=error.strerror or str(error)
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PlanError(
            f"'{path}' is not a manifest",
            why=str(error),
            fix="make one with `surgery seal CKPT --to FILE`",
        ) from None
    digests = {leaf.spelling or leaf.path: leaf for leaf in found.leaves}
    sorts = {key: _sort(leaf.kind, leaf.type_text) for key, leaf in digests.items() if leaf.kind}
    return Expected(
        source=str(path),
        digests=digests,
        sorts=sorts,
        containers=found.containers,
        is_complete=True,
    )


def _sort(kind: str, type_text: str) -> str:
    """What the values of a leaf do not tell and a restore depends on: a number is no array, a key no bits.

    Whether an array is NumPy's is left out: it differs between formats that hold the same.
    """
    if kind in (LeafKind.ARRAY, LeafKind.NUMPY):
        return "an array"
    return type_text if kind in (LeafKind.KEY, LeafKind.EMPTY) else kind


class _ManifestLeaf(LeafDigest, frozen=True, kw_only=True):
    """A leaf of a manifest, with its digest."""

    path: str
    spelling: str = ""
    kind: str = ""
    type_text: str = ""


class _Manifest(msgspec.Struct, frozen=True):
    """What of the document of ``inspect --digests --json`` is a manifest."""

    leaves: list[_ManifestLeaf]
    containers: dict[str, str] | None = None
    """Missing in manifests of before."""


def _recorded(checkpoint: Checkpoint, record: Record, source: str) -> Expected:
    return Expected(
        source=f"digests in {source}",
        digests=chosen_digests(checkpoint, record),
        key_of=lambda path: record_key(checkpoint, path),
        files=record.files,
    )


def check_bytes(
    checkpoint: Checkpoint,
    expected: Expected,
    damage: Sequence[reports.Finding] = (),
    *,
    allow_non_finite: bool,
    listener: Listener | None,
) -> reports.Verdict:
    """Read every leaf, and every file of a seal, and say what differs and what nothing could be held against."""
    seen = _Leaves(checkpoint, expected)
    seen.read(listener)
    findings = [*damage, *(_metadata_findings(checkpoint)), *seen.findings]
    findings += _container_findings(checkpoint, expected)
    notes = device_notes(checkpoint)
    if allow_non_finite:
        notes += _named("NaN", {text: count.nan for text, count in seen.non_finite.items()})
    else:
        findings += _nan_findings(checkpoint, seen.non_finite)
    infinite = {text: count.infinite for text, count in seen.non_finite.items() if count.infinite}
    notes += _named("infinite values", infinite)
    if expected.files:
        findings += _file_findings(checkpoint, expected.files, listener)
    elif not findings:
        notes.append(_NOT_SEALED)
    return reports.Verdict(
        checkpoint=str(checkpoint.location.root),
        against=expected.source,
        agrees=not findings,
        findings=findings,
        checked=seen.checked,
        unchecked=len(checkpoint.tree) - seen.checked,
        files_checked=len(expected.files),
        infinities=infinite,
        reads_values=True,
        notes=notes,
    )


class _Leaves:
    """The leaves of a checkpoint held against digests."""

    def __init__(self, checkpoint: Checkpoint, expected: Expected) -> None:
        self._checkpoint = checkpoint
        self._expected = expected
        self.findings: list[reports.Finding] = []
        self.checked = 0
        self.non_finite: dict[str, NonFinite] = {}

    def read(self, listener: Listener | None) -> None:
        """Read every leaf, and compare those with a known digest."""
        tree, digests = self._checkpoint.tree, self._expected.digests
        meter = Meter(listener, "verifying", tree.bytes)
        present: set[str] = set()
        costs = ((path, reading_bytes(spec)) for path, spec in tree.items())
        for path, found in zip(tree, in_order(self._digest, costs), strict=True):
            key = self._expected.key_of(path)
            present.add(key)
            self._judge(path, digests.get(key), found)
            meter.advance(tree[path].bytes, tree.texts[path])
        self.findings += [_finding(key, "missing") for key in digests if key not in present]
        found_in = self.non_finite  # leaves are read side by side, and told in stored order
        self.non_finite = {text: found_in[text] for text in tree.texts.values() if text in found_in}

    def _digest(self, path: LeafPath) -> LeafDigest | CheckpointError | None:
        """The digest over the recorded grid; None if that is of a leaf of another rank."""
        spec = self._checkpoint.tree[path]
        expected = self._expected.digests.get(self._expected.key_of(path))
        grid = expected.grid if expected is not None and expected.grid else None
        if grid is not None and len(grid) != len(spec.shape):
            return None
        counts: list[NonFinite] = []

        def look(values: Any) -> None:
            counts.append(count_non_finite(values))

        try:
            digest = leaf_digest(self._checkpoint, path, spec, grid, look)
        except CheckpointError as error:
            return error
        if any(counts):
            text = self._checkpoint.tree.texts[path]
            self.non_finite[text] = NonFinite(*map(sum, zip(*counts, strict=True)))
        return digest

    def _judge(
        self,
        path: LeafPath,
        expected: LeafDigest | None,
        found: LeafDigest | CheckpointError | None,
    ) -> None:
        text, spec = self._checkpoint.tree.texts[path], self._checkpoint.tree[path]
        if isinstance(found, CheckpointError):
            problem = found.problems[0]
            self.findings.append(_finding(text, "unreadable", here=problem.why or problem.what))
        elif expected is None and self._expected.is_complete:
            self.findings.append(_finding(text, "extra", here=spec.type_text))
        elif expected is not None:
            self.checked += 1
            if found is None:
                self.findings.append(_finding(text, "shape", here=spec.type_text))
            elif found.digest != expected.digest:
                self.findings.append(
                    _finding(text, "values", here=found.digest, there=expected.digest)
                )
            else:
                self._judge_sort(path)

    def _judge_sort(self, path: LeafPath) -> None:
        """Hold what the digest does not tell of a leaf against what is known of it."""
        text, spec = self._checkpoint.tree.texts[path], self._checkpoint.tree[path]
        here = _sort(spec.kind, spec.type_text)
        there = self._expected.sorts.get(self._expected.key_of(path), here)
        if here != there:
            self.findings.append(_finding(text, "kind", here=here, there=there))


def _metadata_findings(checkpoint: Checkpoint) -> list[reports.Finding]:
    return [
        reports.Finding(path=file, what="metadata", detail=detail)
        for file, detail in metadata_faults(checkpoint)
    ]


def _container_findings(checkpoint: Checkpoint, expected: Expected) -> Iterator[reports.Finding]:
    """Nodes that print the same leaves and are another container: a restore into the other side's tree fails."""
    known = [path for path in checkpoint.tree if expected.key_of(path) in expected.digests]
    found = containers_of(checkpoint, known)
    if expected.containers is None or found is None:
        return
    above = TreeSpec({path: checkpoint.tree[path] for path in known}).nodes
    nodes = {node.spelling for node in above}
    for node in sorted(nodes & (found.keys() | expected.containers.keys())):
        here, there = found.get(node, "dict"), expected.containers.get(node, "dict")
        if here != there:
            yield _finding(node or ".", "container", here=here, there=there)


def _nan_findings(
    checkpoint: Checkpoint, counts: Mapping[str, NonFinite]
) -> Iterable[reports.Finding]:
    for path, text in checkpoint.tree.texts.items():
        if text in counts and counts[text].nan:
            detail = f"{counts[text].nan:,} of {checkpoint.tree[path].size:,} values are NaN"
            fix = "`--allow-non-finite` passes them, where they are meant"
            yield reports.Finding(path=text, what="NaN", detail=detail, fix=fix)


def _file_findings(
    checkpoint: Checkpoint, expected: Mapping[str, str], listener: Listener | None
) -> list[reports.Finding]:
    own = record_path(checkpoint)  # the seal itself, or one that came after it
    files = files_of(recorded_place(checkpoint), None if own.name in expected else own)
    sizes = {key: filesystem.size(path) for key, path in files.items()}
    meter = Meter(listener, "verifying files", sum(sizes.values()))
    findings = []
    for key, digest in file_digests(files, meter.advance).items():
        if isinstance(digest, CheckpointError):
            findings.append(_of_problem(key, "file unreadable", digest))
        elif key not in expected:
            findings.append(_finding(key, "file added"))
        elif digest != expected[key]:
            findings.append(_finding(key, "file changed", here=digest, there=expected[key]))
    return findings + [_finding(key, "file missing") for key in expected if key not in files]


def _named(what: str, counts: Mapping[str, int]) -> list[str]:
    """A note that names the leaves that have some."""
    named = [f"'{text}' ({count:,})" for text, count in counts.items() if count]
    if not named:
        return []
    return [f"{what} in {listed(named, _MOST_NAMED)}"]


def _finding(path: str, what: str, *, here: str = "", there: str = "") -> reports.Finding:
    return reports.Finding(path=path, what=what, here=here, there=there)


def _of_problem(path: str, what: str, error: CheckpointError) -> reports.Finding:
    problem = error.problems[0]
    return reports.Finding(path=path, what=what, detail=problem.why or problem.what)
