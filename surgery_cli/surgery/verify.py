"""Verify: every byte against digests on record, or the structure against another checkpoint's."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from msgspec.structs import replace

from surgery_cli import reports
from surgery_cli.engine.progress import Listener
from surgery_cli.errors import PlanError
from surgery_cli.proof.metadata_files import side_items
from surgery_cli.proof.older_steps import assumed_steps
from surgery_cli.proof.structure import compare
from surgery_cli.salvage.opening import opened
from surgery_cli.script.user_code import Say
from surgery_cli.settings.sample import Sample, sample_of
from surgery_cli.settings.shared import MEMORY_BYTES
from surgery_cli.store.filesystem.listing import reads
from surgery_cli.store.open.as_opened import as_opened
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.byte_checks import check_bytes
from surgery_cli.surgery.expected_digests import manifest, on_record
from surgery_cli.surgery.leaf_names import document_names, spellings
from surgery_cli.surgery.open_ends import settings_read
from surgery_cli.surgery.sides import items_apart, sides
from surgery_cli.tree.containers import alike_but_for_containers, unlike_containers
from surgery_cli.words.lists import listed, no_leaf_in_both, quoted
from surgery_cli.words.notes import Consequence, Note
from surgery_cli.words.pages import DocsPage


@reads
def verify(
    argument: str,
    *,
    step: int | None = None,
    item: str | None = None,
    like: str | None = None,
    like_init: str | None = None,
    like_manifest: Path | None = None,
    sample: str | None = None,
    seed: int | None = None,
    allow_non_finite: bool = False,
    memory_bytes: int = MEMORY_BYTES,
    listener: Listener | None = None,
    say: Say = lambda _: None,
) -> reports.Verdict:
    """Read every byte and check it against digests on record; or compare the structure with another's.

    ``like_init`` is ``FILE.py:FUNCTION`` of the training script: would a restore into its pytree work, and exactly?
    ``like_manifest`` is what ``seal --to`` wrote, or the document of ``inspect --digests --json``. NaN is a finding
    unless ``allow_non_finite``. ``sample`` is a share at random (``5%``, the same for the same ``seed``) or a turn
    (``3/20``): only so much is read. ``say`` is told what code of the user's is about to be imported, and before values
    are read what takes more memory than ``memory_bytes``, or more time for that.

    Raises:
        PlanError: nothing stands there, or more than one thing is given to hold it against.
        CheckpointError: what stands there, or its record, cannot be read; a damaged leaf is a finding.
    """
    asked = {"--like": like, "--like-init": like_init, "--like-manifest": like_manifest}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise PlanError(
            f"{listed(given, word='and', mark='`')} {'both' if len(given) == 2 else 'all'} say what to hold the"
            " checkpoint against",
            fix="give one of them, and run `verify` again for another",
        )
    part = _part(sample, seed, like or like_init)
    checkpoint = opened(argument, step=step, item=item)
    if like_init is not None:
        from surgery_cli.surgery.like_init import verdict  # loads what looks at code

        return _chosen(verdict(checkpoint, argument, like_init, say), checkpoint)
    if like is not None:
        other = _opened_like(like, item)
        return _chosen(_like(checkpoint, other), checkpoint, other)
    expected = (
        on_record(checkpoint) if like_manifest is None else manifest(checkpoint, like_manifest)
    )
    with as_opened(checkpoint):
        found = check_bytes(
            checkpoint,
            expected,
            allow_non_finite=allow_non_finite,
            memory_bytes=memory_bytes,
            listener=listener,
            say=say,
            sample=part,
            seed=seed,
        )
    return _chosen(found if part else _with_settings(found, checkpoint), checkpoint)


def _part(sample: str | None, seed: int | None, structure: str | None) -> Sample | None:
    """Which part of the values is read; None for all.

    Raises:
        PlanError: it is no part, or nothing is drawn or read.
    """
    part = None if sample is None else sample_of(sample)
    if part is not None and structure is not None:
        raise PlanError(
            "`--sample` says which values are read, and a comparison of structure reads none",
            fix="leave one of the two out",
        )
    if seed is not None and (part is None or part.share is None):
        raise PlanError(
            "`--seed` says what is drawn at random, and nothing is",
            fix="add `--sample 5%`, or leave it out",
        )
    return part


def _with_settings(found: reports.Verdict, checkpoint: Checkpoint) -> reports.Verdict:
    """The verdict with what stored settings of the optimizer mean for training."""
    return replace(found, notes=[*found.notes, *settings_read(checkpoint)])


def _chosen(
    found: reports.Verdict, checkpoint: Checkpoint, other: Checkpoint | None = None
) -> reports.Verdict:
    """The verdict with the steps that it is about."""

    def said(one: Checkpoint | None) -> str:
        return one.location.chosen if one is not None and one.location.step is not None else ""

    return replace(
        found,
        chosen=said(checkpoint),
        chosen_against=said(other),
        assumptions=assumed_steps(checkpoint, other),
    )


def _beside(*sides: Checkpoint) -> list[Note]:
    """What is in them and was not opened: nothing is said of it."""
    names = {name for side in sides for name in side.location.other_items}
    no_trees = {path.name for side in sides for path in side_items(side)}
    why = {"they are no trees": names & no_trees, "`--item` chose another": names - no_trees}
    return [
        Consequence(
            DocsPage.CHECKED_BY_VERIFY, f"not compared, as {because}: {listed(sorted(said), 5)}"
        )
        for because, said in why.items()
        if said
    ]


def _opened_like(like: str, item: str | None) -> Checkpoint:
    """What is compared with: of a step with items the one of that name, if one was chosen.

    Raises:
        PlanError: it has none of that name.
    """
    other = opened(like)
    if (
        item is None or other.location.folder_of_items is None
    ):  # one tree by itself is what was named
        return other
    items = other.location.items
    if item not in items:
        path = quote(str(next(iter(items.values()))))
        raise PlanError(
            f"there is no tree '{item}' in '{like}'",
            why=f"its trees are {quoted(items, 5)}",
            fix=f"name another step, or one of these by its own path: `--like {path}`",
        )
    return opened(like, item=item)


def _like(checkpoint: Checkpoint, other: Checkpoint) -> reports.Verdict:
    """Structure, shapes, kinds and dtypes, never values."""
    left, right = sides(checkpoint, other)
    pairs = alike_but_for_containers(left.tree, right.tree)
    own, tree = left.tree, right.renamed(pairs).tree
    comparison = compare(own, tree)
    names = document_names({**own.texts, **tree.texts})
    findings = [
        *(
            reports.Finding(str(node), "container", reports.Subject.NODE, here=one, there=another)
            for node, (one, another) in unlike_containers(pairs).items()
        ),
        *(reports.Finding(names[p], "extra", here=own[p].held_text) for p in comparison.only_in_a),
        *(
            reports.Finding(names[p], "missing", there=tree[p].held_text)
            for p in comparison.only_in_b
        ),
        *(reports.Finding(names[d.path], d.what, here=d.a, there=d.b) for d in comparison.changed),
    ]
    apart = items_apart(left, right)
    told = [Consequence(DocsPage.CHECKED_BY_VERIFY, no_leaf_in_both(apart))] if apart else []
    differing = {*pairs, *comparison.only_in_a, *(d.path for d in comparison.changed)}
    return reports.Verdict(
        checkpoint=str(checkpoint.location.root),
        named_step=checkpoint.location.named_step,
        address=checkpoint.location.address,
        against=str(other.location.root),
        agrees=not findings,
        findings=findings,
        checked=len(own),
        unchecked=0,
        notes=[*_beside(checkpoint, other), *told],
        agreeing=[names[path] for path in own if path not in differing],
        spellings=spellings(names),
    )
