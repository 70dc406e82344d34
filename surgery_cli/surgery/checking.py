"""Verify: every byte against digests on record, or the structure against another checkpoint's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from surgery_cli import reports
from surgery_cli.engine.budget import in_order
from surgery_cli.engine.progress import Listener, Meter
from surgery_cli.engine.reading import reading_bytes
from surgery_cli.errors import CheckpointError, PlanError
from surgery_cli.optimizer.survey import survey
from surgery_cli.plan import plan_from_document
from surgery_cli.regular_files import refuse_special
from surgery_cli.resolution import resolve
from surgery_cli.store.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.contract import Held, Say, hold, items_of, read_script, with_commands
from surgery_cli.surgery.records import digests_on_record, record_key
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.verification.digests import LeafDigest, leaf_digest
from surgery_cli.verification.exchanges import Edit
from surgery_cli.verification.structure import compare

_NO_DIGEST: Final = (
    "unchecked leaves have no digest on record; "
    "`surgery inspect --digests --json` makes a manifest of all"
)

_NOTHING_TO_COMPARE: Final = (
    "every leaf was read and decoded, but no digest on record tells whether its values are right; "
    "`surgery inspect --digests --json` makes a manifest of all"
)


def verify(
    argument: str,
    *,
    step: int | None = None,
    item: str | None = None,
    like: str | None = None,
    like_init: str | None = None,
    like_manifest: Path | None = None,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Verdict:
    """Read every byte and check it against digests on record; or compare the structure with another's.

    ``like_init`` is ``FILE.py:FUNCTION`` of the training script: would a restore into its pytree work, and exactly?
    ``say`` is told what code of the user's is about to be imported.

    Raises:
        PlanError: nothing stands there, or more than one thing is given to hold it against.
        CheckpointError: what stands there, or its record, cannot be read; a damaged leaf is a finding.
    """
    asked = {"--like": like, "--like-init": like_init, "--like-manifest": like_manifest}
    given = [f"`{name}`" for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise PlanError(
            f"{' and '.join(given)} {'both' if len(given) == 2 else 'all'} say what to hold the"
            " checkpoint against",
            fix="give one of them, and run `verify` again for another",
        )
    checkpoint = open_checkpoint(argument, step=step, item=item)
    if like_init is not None:
        return _like_init(checkpoint, argument, like_init, say)
    if like is not None:
        return _like(checkpoint, open_checkpoint(like))
    if like_manifest is not None:
        return _bytes(
            checkpoint,
            _manifest(like_manifest),
            str(like_manifest),
            listener,
            key_of=lambda path: path.spelling,
            strict=True,
        )
    known = digests_on_record(checkpoint)
    against = "nothing: no digests are on record"
    if known is not None:
        against = "digests in surgery.json"
    return _bytes(
        checkpoint,
        known or {},
        against,
        listener,
        key_of=lambda path: record_key(checkpoint, path),
        strict=False,
    )


def _like(checkpoint: Checkpoint, other: Checkpoint) -> reports.Verdict:
    """Structure, shapes, kinds and dtypes, never values."""
    comparison = compare(checkpoint.tree, other.tree)
    findings = [
        *(
            _finding(str(p), "extra", here=checkpoint.tree[p].type_text)
            for p in comparison.only_in_a
        ),
        *(_finding(str(p), "missing", there=other.tree[p].type_text) for p in comparison.only_in_b),
        *(_finding(str(d.path), d.what, here=d.a, there=d.b) for d in comparison.changed),
    ]
    return reports.Verdict(
        checkpoint=str(checkpoint.location.root),
        against=str(other.location.root),
        agrees=not findings,
        findings=findings,
        checked=len(checkpoint.tree),
        unchecked=0,
    )


def _like_init(checkpoint: Checkpoint, argument: str, function: str, say: Say) -> reports.Verdict:
    """What a restore into the function's pytree would refuse or silently change; no value is read."""
    script = read_script(function, say=say)

    def attempt(edits: Sequence[Edit]) -> TreeSpec:
        return resolve(plan_from_document({"edits": list(edits)}), checkpoint, open_checkpoint).tree

    held, _ = hold(
        script, checkpoint.tree, survey(checkpoint.tree).slots, items_of(checkpoint), attempt
    )
    return reports.Verdict(
        checkpoint=str(checkpoint.location.root),
        against=function,
        agrees=not held.findings,
        findings=with_commands(held, argument),
        checked=held.checked,
        unchecked=held.unchecked,
        notes=[*held.notes, *_unchecked_items(held)],
    )


def _unchecked_items(held: Held) -> list[str]:
    text = "unchecked leaves stand in items that the function does not return"
    return [text] if held.unchecked else []


def _finding(path: str, what: str, *, here: str = "", there: str = "") -> reports.Finding:
    return reports.Finding(path=path, what=what, here=here, there=there)


def _bytes(
    checkpoint: Checkpoint,
    known: dict[str, LeafDigest],
    against: str,
    listener: Listener | None,
    *,
    key_of: Callable[[LeafPath], str],
    strict: bool,
) -> reports.Verdict:
    """Read every leaf; compare those with a known digest. ``strict``: what the digests do not name is a finding."""
    tree = checkpoint.tree
    findings = []
    checked = 0
    present: set[str] = set()
    meter = Meter(listener, "verifying", tree.bytes)

    def digest_of(path: LeafPath) -> LeafDigest | CheckpointError | None:
        expected = known.get(key_of(path))
        grid = expected.grid if expected is not None and expected.grid else None
        if grid is not None and len(grid) != len(tree[path].shape):
            return None  # the digest is of a leaf of another rank
        try:
            return leaf_digest(checkpoint, path, tree[path], grid)
        except CheckpointError as error:
            return error

    costs = ((path, reading_bytes(spec)) for path, spec in tree.items())
    for (path, spec), found in zip(tree.items(), in_order(digest_of, costs), strict=True):
        text, key = tree.texts[path], key_of(path)
        expected = known.get(key)
        present.add(key)
        if found is None:
            checked += 1
            findings.append(_finding(text, "shape", here=spec.type_text))
            continue
        if isinstance(found, CheckpointError):
            problem = found.problems[0]
            findings.append(_finding(text, "unreadable", here=problem.why or problem.what))
            continue
        if expected is not None:
            checked += 1
            if found.digest != expected.digest:
                findings.append(_finding(text, "values", here=found.digest, there=expected.digest))
        elif strict:
            findings.append(_finding(text, "extra", here=spec.type_text))
        meter.advance(spec.bytes, text)
    findings += [_finding(key, "missing") for key in known if key not in present]
    unchecked = len(tree) - checked
    note = _NO_DIGEST if checked else _NOTHING_TO_COMPARE
    return reports.Verdict(
        checkpoint=str(checkpoint.location.root),
        against=against,
        agrees=not findings,
        findings=findings,
        checked=checked,
        unchecked=unchecked,
        notes=[note] if unchecked and not findings else [],
    )


class _ManifestLeaf(LeafDigest, frozen=True, kw_only=True):
    """A leaf of a manifest, with its digest."""

    path: str
    spelling: str = ""


class _Manifest(msgspec.Struct, frozen=True):
    """What of the document of ``inspect --digests --json`` is a manifest."""

    leaves: list[_ManifestLeaf]


def _manifest(path: Path) -> dict[str, LeafDigest]:
    """The digests of a manifest, by the unambiguous spelling of paths.

    Raises:
        PlanError: the file cannot be read, or is no manifest.
    """
    refuse_special(path, PlanError)
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Manifest)
    except OSError as error:
        raise PlanError(
            f"the manifest '{path}' cannot be read", why=error.strerror or str(error)
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PlanError(
            f"'{path}' is not a manifest",
            why=str(error),
            fix="make one with `surgery inspect CKPT --digests --json > manifest.json`",
        ) from None
    return {leaf.spelling or leaf.path: leaf for leaf in document.leaves}
