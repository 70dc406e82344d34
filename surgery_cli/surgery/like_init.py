"""``--like-init``: a tree held against what the training script's own function returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from surgery_cli import reports
from surgery_cli.draft.recipe import Draft
from surgery_cli.errors import ContractError, Problem, SurgeryError
from surgery_cli.matching.subtrees import Former
from surgery_cli.optimizer.detect.survey import survey
from surgery_cli.planning import Plan, plan_from_document
from surgery_cli.planning.command_line import command_text
from surgery_cli.resolution import resolve
from surgery_cli.script.contract import Breach, breaches
from surgery_cli.script.findings import Edit, Mend, Slots
from surgery_cli.script.former_paths import former_paths
from surgery_cli.script.function import Say, Script, read_script
from surgery_cli.script.items import aligned
from surgery_cli.script.other_optimizers import said_of_others
from surgery_cli.script.remedies import OR
from surgery_cli.script.repairs import mends
from surgery_cli.store.open.checkpoint import Checkpoint, open_checkpoint
from surgery_cli.surgery.written_values import WrittenValues
from surgery_cli.tree.specs import TreeSpec
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage

Try = Callable[[Sequence[Edit]], TreeSpec]
"""The tree that further edits would give. Raises SurgeryError if they cannot be done."""

_OWN_DOING: Final = "the source fits there: let the function return what the edits of this run make, or leave them out"
"""Instead of edits, which could but undo those of the run."""

_TRIED: Final = 20
"""How many findings have their edits tried out one by one; trying resolves a plan over the whole tree."""


class Held(msgspec.Struct, frozen=True):
    """A tree that was held against a script: what was compared, and what was found.

    ``is_mended``: the edits of all findings, one after the other, leave nothing that differs.
    """

    findings: list[reports.Finding]
    agreeing: list[str]
    checked: int
    not_checked: list[str]
    notes: list[Consequence] = []
    is_mended: bool = False
    advice: str = ""


def items_of(checkpoint: Checkpoint, draft: Draft | None = None) -> list[str]:
    """The items whose names paths begin with, in the checkpoint or in what becomes of it; else the only one."""
    is_prefixed = draft.items.is_prefixed if draft else checkpoint.location.prefix_items
    if not is_prefixed:
        return list(checkpoint.items)[:1]
    left = [str(path[0]) for path in draft.leaves] if draft else []
    return list(dict.fromkeys([*checkpoint.items, *left]))


def hold(
    script: Script,
    tree: TreeSpec,
    slots: Slots,
    items: Sequence[str],
    attempt: Try,
    former: Former = (),
    before: TreeSpec | None = None,
) -> Held:
    """Hold a tree against the script, and try out the edits that would mend what differs.

    ``slots`` are those of the tree, ``items`` as ``items_of`` gives them; ``attempt`` gives the tree that edits would
    make of it. ``former`` says where leaves stood before earlier edits, ``before`` is the tree that this run edits.
    """
    found_in = aligned(script.name, script.abstract, tree, items)
    wanted, stored = found_in.wanted, found_in.stored
    found = breaches(stored, wanted)
    there = survey(wanted).slots if found else {}
    every = mends(found, stored, wanted, slots, there, former) if found else []
    names = {path[0] for path in stored} if len(items) > 1 else None

    def tried(edits: Sequence[Edit]) -> TreeSpec:
        after = attempt(edits)
        if names is None:
            return after
        return TreeSpec({path: spec for path, spec in after.items() if path[0] in names})

    if before is not None and found:
        unedited = aligned(script.name, script.abstract, before, items)
        own = _faults(breaches(unedited.stored, unedited.wanted))
        every = [m if _faults(m.breaches) & own else _undoing(m) for m in every]
    proved, mended = _proved(every, found, wanted, tried)
    rows = [_finding(mend) for mend in proved]
    broken = {path for breach in found for path in breach.leaves}
    agreeing = [str(path) for path in stored if path not in broken]
    not_checked = [str(path) for path in tree if path not in stored]
    notes = [*found_in.notes, *said_of_others(slots, there)]
    return Held(rows, agreeing, len(stored), not_checked, notes, mended, found_in.advice)


# --- edits that mend: tried out before they are shown ----------------------------------------------------------


def _proved(
    every: Sequence[Mend], found: Sequence[Breach], wanted: TreeSpec, attempt: Try
) -> tuple[list[Mend], bool]:
    """The findings, without the edits that do not mend them; and if those that are left mend all, together."""
    before = _faults(found) | {fault for mend in every for fault in _faults(mend.breaches)}
    candidates = [mend for mend in every if mend.edits]
    if not candidates:
        return list(every), False
    if _mend_all(candidates, before, wanted, attempt):
        return list(every), len(candidates) == len(every)
    tried = candidates[:_TRIED]
    good = [m for m in tried if _mend_all([m], before, wanted, attempt)]
    return [
        m if m in good else _without_edits(m, attempt if m in tried else None) for m in every
    ], False


def _undoing(mend: Mend) -> Mend:
    """The finding of what the edits of the run alone have brought."""
    return msgspec.structs.replace(mend, edits=(), advice=_OWN_DOING)


def _without_edits(mend: Mend, attempt: Try | None) -> Mend:
    """The finding without its edits; if they are refused, with the reason and the way out as its advice."""
    said = mend.advice
    if attempt is not None and not said:
        try:
            attempt(mend.edits)
        except SurgeryError as error:
            problem = error.problems[0]
            said = f"`{mend.edits[0]['op']}` alone is refused, {problem.what}"
            said += f": {problem.fix}" if problem.fix else ""
    return msgspec.structs.replace(mend, edits=(), advice=said)


def _mend_all(tried: Sequence[Mend], before: set[Any], wanted: TreeSpec, attempt: Try) -> bool:
    """True if the edits take all faults of their findings away, and bring none."""
    try:
        after = attempt([edit for mend in tried for edit in mend.edits])
    except SurgeryError:
        return False
    left = _faults(breaches(after, wanted))
    own = {fault for mend in tried for fault in _faults(mend.breaches)}
    return not left & own and left <= before


def _faults(found: Sequence[Breach]) -> set[tuple[Any, bool]]:
    return {(leaf, breach.what == "missing") for breach in found for leaf in breach.leaves}


# --- findings as text ----------------------------------------------------------------------------------------


def _finding(mend: Mend) -> reports.Finding:
    return reports.Finding(
        path=mend.name or str(mend.path),
        what=mend.what,
        here=mend.here,
        there=mend.there,
        effect=mend.effect,
        leaves=mend.leaves,
        twins=list(mend.twins),
        edits=list(mend.edits),
        certainty=mend.certainty,
        why=list(mend.why),
        fix=mend.advice,
    )


def with_commands(held: Held, source: str) -> list[reports.Finding]:
    """The findings, each with the command or the plan that would mend it."""
    return [
        _led(
            finding,
            f"`{command_text(finding.edits[0], source)}`"
            if len(finding.edits) == 1
            else f"a plan with `edits: {_flow(finding.edits)}`",
        )
        for finding in held.findings
    ]


def whole_plan(held: Held) -> list[Note]:
    """The one plan that mends several findings."""
    if not held.is_mended or len(held.findings) < 2:
        return []
    edits = [edit for finding in held.findings for edit in finding.edits]
    return [Remark(DocsPage.MENDING_PLANS, f"one plan mends all: `edits: {_flow(edits)}`")]


def _led(finding: reports.Finding, edits: str) -> reports.Finding:
    """The finding with the text of its edits before its advice, if it has edits."""
    if not finding.edits:
        return msgspec.structs.replace(finding, fix=finding.fix.removeprefix(OR))
    return msgspec.structs.replace(finding, fix=", ".join(filter(None, (edits, finding.fix))))


def _flow(value: Any) -> str:
    """Plain values as YAML on one line."""
    return msgspec.json.encode(value).decode()


def refuse_breaches(held: Held, script: Script) -> None:
    """Stop a command whose result the script could not restore.

    Raises:
        ContractError: one problem for each finding.
    """
    if not held.findings:
        return
    problems = []
    for finding in held.findings:
        fix = _led(finding, f"these edits of a plan mend it: `{_flow(finding.edits)}`").fix
        is_root = finding.path in ("", ".")
        sides = f"here {finding.here or 'nothing'}, in the script {finding.there or 'nothing'}"
        problems.append(
            Problem(
                f"'{finding.path or '.'}' would not fit '{script.name}': {finding.what}",
                why="; ".join(filter(None, (sides, finding.effect, finding.sureness))),
                fix="; ".join(filter(None, (fix, held.advice if is_root else ""))),
                path=finding.path,
            )
        )
    raise ContractError.of(problems)


def check_draft(
    script: Script,
    draft: Draft,
    plan: Plan,
    checkpoint: Checkpoint,
    drafted: Callable[[Plan], Draft],
) -> list[Consequence]:
    """Hold a draft against the script; ``drafted`` resolves another plan over the same source.

    Returns what must be said of the comparison.

    Raises:
        ContractError: the script could not restore the result as it is.
    """

    def attempt(edits: Sequence[Edit]) -> TreeSpec:
        more = plan_from_document({"edits": list(edits)})
        longer = msgspec.structs.replace(
            plan, edits=(*plan.edits, *more.edits), origins=(*plan.origins, *more.origins)
        )
        return drafted(longer).tree

    items = items_of(checkpoint, draft)
    moved = {str(p): str(r.home.path) for p, r in draft.leaves.items() if r.home}
    former = former_paths(checkpoint, moved)
    before = checkpoint.tree if plan.edits and items == items_of(checkpoint) else None
    held = hold(script, draft.tree, draft.slots, items, attempt, former, before)
    refuse_breaches(held, script)
    return held.notes


def verdict(checkpoint: Checkpoint, argument: str, function: str, say: Say) -> reports.Verdict:
    """What a restore into the function's pytree would refuse or silently change; no value is read."""
    script, values = read_script(function, say=say), WrittenValues()

    def attempt(edits: Sequence[Edit]) -> TreeSpec:
        # what rounding has made of a setting, no cast brings back: it is looked at before an edit is shown
        plan = plan_from_document({"edits": list(edits)})
        return resolve(plan, checkpoint, open_checkpoint, values=values.of).tree

    slots, former = survey(checkpoint.tree).slots, former_paths(checkpoint)
    held = hold(script, checkpoint.tree, slots, items_of(checkpoint), attempt, former)
    return reports.Verdict(
        checkpoint=str(checkpoint.location.root),
        named_step=checkpoint.location.named_step,
        address=checkpoint.location.address,
        against=function,
        agrees=not held.findings,
        findings=with_commands(held, argument),
        checked=held.checked,
        unchecked=len(held.not_checked),
        agreeing=held.agreeing,
        not_checked=held.not_checked,
        notes=[*held.notes, *_unchecked_items(held), *whole_plan(held)],
    )


def _unchecked_items(held: Held) -> list[Note]:
    text = "unchecked leaves stand in items that the function does not return"
    return [Consequence(DocsPage.CHECKED_BY_VERIFY, text)] if held.not_checked else []
