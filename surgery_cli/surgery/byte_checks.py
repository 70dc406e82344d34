"""Verify against digests: the value of every leaf, every sealed file, and what can be told of metadata without any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from surgery_cli import reports
from surgery_cli.draft.seen import NonFinite
from surgery_cli.engine.bounded_reads import Reading
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.digests import LeafDigest, digest_reading, leaf_digest
from surgery_cli.engine.finite import count_non_finite
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.errors import CheckpointError, NotPermittedError
from surgery_cli.proof.files import file_digests, files_of
from surgery_cli.proof.metadata_files import metadata_faults
from surgery_cli.proof.records import (
    record_path,
    recorded_place,
)
from surgery_cli.proof.sharding_file import device_notes
from surgery_cli.script.user_code import Say
from surgery_cli.store import filesystem
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.expected_digests import Expected, sort_of
from surgery_cli.surgery.leaf_names import containers_of
from surgery_cli.surgery.look_memory import Look, planned_looks
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.lists import listed

_NOT_SEALED: Final = (
    "no file has a digest: metadata was held against itself, other files and dead bytes against nothing;"
    " `surgery seal` records digests of all leaves and files"
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
) -> reports.Verdict:
    """Read every leaf, and every file of a seal, and say what differs and what nothing could be held against."""
    seen = _Leaves(checkpoint, expected)
    seen.read(memory_bytes, listener, say)
    findings = [*expected.damage, *_metadata_findings(checkpoint), *seen.findings]
    findings += _container_findings(checkpoint, expected)
    notes = device_notes(checkpoint)
    if allow_non_finite:
        notes += _named("NaN", {text: count.nan for text, count in seen.non_finite.items()})
    else:
        findings += _nan_findings(checkpoint, seen.non_finite)
    infinite = {text: count.infinite for text, count in seen.non_finite.items() if count.infinite}
    notes += _named("infinite values", infinite)
    of_files = _file_findings(checkpoint, expected.files, listener) if expected.files else []
    findings += of_files
    if not expected.files and not findings:
        notes.append(_NOT_SEALED)
    return reports.Verdict(
        checkpoint=str(checkpoint.location.root),
        against=expected.source,
        agrees=not findings,
        findings=findings,
        checked=seen.checked,
        unchecked=len(checkpoint.tree) - seen.checked,
        agreeing=seen.agreeing,
        not_checked=seen.not_checked,
        files_checked=len(expected.files),
        files_agreeing=sorted(expected.files.keys() - {found.path for found in of_files}),
        infinities=infinite,
        reads_values=True,
        has_lost_digests=bool(expected.damage),
        notes=notes,
    )


class _Leaves:
    """The leaves of a checkpoint held against digests."""

    def __init__(self, checkpoint: Checkpoint, expected: Expected) -> None:
        self._checkpoint = checkpoint
        self._expected = expected
        self.findings: list[reports.Finding] = []
        self.checked = 0
        self.agreeing: list[str] = []
        self.not_checked: list[str] = []
        self.non_finite: dict[str, NonFinite] = {}

    def read(self, memory_bytes: int, listener: Listener | None, say: Say) -> None:
        """Read every leaf, and compare those with a known digest."""
        tree, digests = self._checkpoint.tree, self._expected.digests
        looks = planned_looks({path: self._look(path) for path in tree}, memory_bytes, say)
        meter = Meter(listener, "verifying", tree.bytes)
        self._checkpoint.expect(tree)
        present: set[str] = set()

        def digest(path: LeafPath) -> LeafDigest | CheckpointError | None:
            return self._digest(path, looks.readings[path])

        every = in_order(digest, looks.costs, looks.limit_bytes)
        for path, found in zip(tree, every, strict=True):
            key = self._expected.key_of(path)
            present.add(key)
            self._judge(path, digests.get(key), found)
            meter.advance(tree[path].bytes, tree.texts[path])
        self.findings += [reports.Finding(key, "missing") for key in digests if key not in present]
        found_in = self.non_finite  # leaves are read side by side, and told in stored order
        self.non_finite = {text: found_in[text] for text in tree.texts.values() if text in found_in}

    def _grid(self, path: LeafPath) -> tuple[int, ...] | None:
        """The recorded grid, if there is one."""
        expected = self._expected.digests.get(self._expected.key_of(path))
        return expected.grid if expected is not None and expected.grid else None

    def _look(self, path: LeafPath) -> Look[Reading]:
        spec, grid = self._checkpoint.tree[path], self._grid(path)
        grid = grid if grid is not None and len(grid) == len(spec.shape) else None
        text = self._checkpoint.tree.texts[path]
        return Look(text, (spec,), partial(digest_reading, spec, grid=grid))

    def _digest(self, path: LeafPath, reading: Reading) -> LeafDigest | CheckpointError | None:
        """The digest over the recorded grid; None if that is of a leaf of another rank."""
        spec, grid = self._checkpoint.tree[path], self._grid(path)
        if grid is not None and len(grid) != len(spec.shape):
            return None
        counts: list[NonFinite] = []

        def look(values: Any) -> None:
            counts.append(count_non_finite(values))

        try:
            digest = leaf_digest(self._checkpoint, path, spec, reading, grid, look)
        except NotPermittedError:
            raise
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
            self.findings.append(
                reports.Finding(text, "unreadable", here=problem.why or problem.what)
            )
        elif expected is None and self._expected.is_complete:
            self.findings.append(reports.Finding(text, "extra", here=spec.type_text))
        elif expected is None:
            self.not_checked.append(text)
        else:
            self.checked += 1
            if found is None:
                self.findings.append(reports.Finding(text, "shape", here=spec.type_text))
            elif found.digest != expected.digest:
                self.findings.append(
                    reports.Finding(text, "values", here=found.digest, there=expected.digest)
                )
            else:
                self._judge_sort(path)

    def _judge_sort(self, path: LeafPath) -> None:
        """Hold what the digest does not tell of a leaf against what is known of it."""
        text, spec = self._checkpoint.tree.texts[path], self._checkpoint.tree[path]
        here = sort_of(spec.kind, spec.type_text)
        there = self._expected.sorts.get(self._expected.key_of(path), here)
        if here != there:
            self.findings.append(reports.Finding(text, "kind", here=here, there=there))
        else:
            self.agreeing.append(text)


def _metadata_findings(checkpoint: Checkpoint) -> list[reports.Finding]:
    return [
        reports.Finding(file, "metadata", detail=detail)
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
            yield reports.Finding(node or ".", "container", here=here, there=there)


def _nan_findings(
    checkpoint: Checkpoint, counts: Mapping[str, NonFinite]
) -> Iterable[reports.Finding]:
    for path, text in checkpoint.tree.texts.items():
        if text in counts and counts[text].nan:
            detail = f"{counts[text].nan:,} of {checkpoint.tree[path].size:,} values are NaN"
            fix = "`--allow-non-finite` passes them, where they are meant"
            yield reports.Finding(text, "NaN", detail=detail, fix=fix)


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
            why = digest.problems[0].why or digest.problems[0].what
            findings.append(reports.Finding(key, "file unreadable", detail=why))
        elif key not in expected:
            findings.append(reports.Finding(key, "file added"))
        elif digest != expected[key]:
            findings.append(reports.Finding(key, "file changed", here=digest, there=expected[key]))
    return findings + [reports.Finding(key, "file missing") for key in expected if key not in files]


def _named(what: str, counts: Mapping[str, int]) -> list[str]:
    """A note that names the leaves that have some."""
    named = [f"'{text}' ({count:,})" for text, count in counts.items() if count]
    if not named:
        return []
    return [f"{what} in {listed(named, _MOST_NAMED)}"]
