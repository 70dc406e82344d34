"""Which LoRAs are in which leaves, by the records of sources and by a draft: what is known goes with the values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET

from surgery_cli.draft.effect import Draws, Effect, Sets, Takes
from surgery_cli.draft.expression import LeafRef, Made, Recipe, Stored, is_computed, parts
from surgery_cli.draft.kernels.convert import Convert
from surgery_cli.draft.kernels.low_rank import AddProduct
from surgery_cli.draft.recipe import SOURCE, Draft, Output
from surgery_cli.operations.lora import WithLora
from surgery_cli.operations.table import operations
from surgery_cli.operations.unmerge_lora import UnmergeLora
from surgery_cli.proof.on_record import read_record, runs_of
from surgery_cli.proof.record_parts import ChangedLeaf, HeldLora, Run
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.surgery.leaf_names import document_names
from surgery_cli.tree.paths import LeafPath

_SAME: Final = 1e-6
"""How far apart, relatively, two scales may be that are the same but for the digits that were typed."""

Key: TypeAlias = tuple[str, str, str]
Held: TypeAlias = dict[Key, HeldLora]
"""LoRAs by what tells them apart: the adapter, its A, and where its alpha is stored."""


class Taken(NamedTuple):
    """A LoRA that a plan takes out of a leaf, and what was in that leaf before."""

    lora: HeldLora
    before: Held

    @property
    def known(self) -> HeldLora | None:
        """The same LoRA as it was merged, by the record."""
        return self.before.get(_key(self.lora)) or self.before.get((self.lora.adapter, "", ""))

    @property
    def fits(self) -> bool:
        """True if it was merged with this scale, as far as is on record."""
        known = self.known
        return known is not None and self._takes_out(known)

    @property
    def others(self) -> list[HeldLora]:
        """LoRAs on record that are in the leaf, and are not known for the same: a copy of the same is none of them."""
        return [] if self.known is not None else [one for one in self.before.values() if one.by]

    @property
    def may_fit_another(self) -> bool:
        """True if one of these was merged with this scale, or nothing says with which."""
        return any(None in one.by or self._takes_out(one) for one in self.others)

    def _takes_out(self, known: HeldLora) -> bool:
        return _without(known.by, self.lora.by[0]) is not None


class LeafLoras(NamedTuple):
    """What becomes of LoRAs in a leaf: those in it ``after`` the plan, those that it has ``added`` and ``taken``.

    ``is_known``: something is on record of it, be it that nothing is left.
    """

    after: Held
    added: list[HeldLora]
    taken: list[Taken]
    is_known: bool


def loras_held(draft: Draft, sources: Mapping[str, Any]) -> dict[LeafPath, LeafLoras]:
    """Of every leaf that a plan changes and in which a LoRA is or was, what becomes of it; a record may be read.

    Raises:
        CheckpointError: a record cannot be read.
    """
    states = {name: _of_source(source) for name, source in sources.items()}
    if not any(states.values()) and not any(map(_meets_lora, draft.leaves.values())):
        return {}
    found = {path: _followed(draft.leaves[path], draft, states) for path in draft.changed}
    return {path: one for path, one in found.items() if one.is_known}


def _meets_lora(output: Output) -> bool:
    return any(_sign(edit.name) for edit in output.edits)


def _sign(name: str) -> int:
    """Whether an operation adds a LoRA or subtracts it; 0 for all others."""
    kind = operations().get(name)
    return kind.sign if kind is not None and issubclass(kind, WithLora) else 0


def _of_source(source: Any) -> dict[LeafPath, Held]:
    """What is in the leaves of a source, by its record."""
    record = read_record(source) if isinstance(source, Checkpoint) else None
    states = {} if record is None else on_record(runs_of(source, record))
    if not states:
        return {}
    names = document_names(source.tree.texts)
    return {path: states[name] for path, name in names.items() if name in states}


def on_record(runs: Sequence[Run]) -> dict[str, Held]:
    """The LoRAs in every leaf that has met one, by its name in the record: what stands there now."""
    states: dict[str, Held] = {}
    for run in reversed(runs):
        new = {leaf.path: _after_run(leaf, run, states) for leaf in run.leaves}
        states = {**states, **new}
    return {name: held for name, held in states.items() if held}


def _after_run(leaf: ChangedLeaf, run: Run, before: Mapping[str, Held]) -> Held:
    if leaf.loras is not UNSET:
        return {_key(lora): lora for lora in leaf.loras}
    held = dict(before.get(leaf.from_ or "", {}))
    if not held and not any(map(_sign, leaf.operations)):
        return {}
    edits = [edit for edit in run.plan.get("edits", ()) if isinstance(edit, dict)]
    for name in leaf.operations:  # of a record that is older than the field
        for edit in (edit for edit in edits if edit.get("op") == name):
            if sign := _sign(name):
                donor = str(edit.get("with", ""))
                lora = HeldLora(adapter=run.donors.get(donor, "") if donor else "", name=donor)
                known = held.get(_key(lora), lora)
                by = (*known.by, None) if sign > 0 else known.by[:-1]
                held[_key(lora)] = msgspec.structs.replace(lora, by=by)
            elif isinstance(_effect(edit), Takes | Sets | Draws):
                held = {}
    return held


def _effect(edit: Mapping[str, Any]) -> Effect | None:
    """What an edit on record did to values; None if this program no longer reads it."""
    kind = operations().get(str(edit.get("op")))
    try:
        return None if kind is None else msgspec.convert(edit, kind).effect
    except (msgspec.ValidationError, NotImplementedError):
        return None


def _key(lora: HeldLora) -> Key:
    return lora.adapter, lora.a, lora.alpha


def _followed(
    output: Output, draft: Draft, states: Mapping[str, dict[LeafPath, Held]]
) -> LeafLoras:
    """What becomes of the LoRAs in a leaf, from what is stored on, kernel by kernel."""
    added: list[HeldLora] = []
    taken: list[Taken] = []
    held: dict[int, Held] = {}
    is_unmerged = any(edit.name == UnmergeLora.__struct_config__.tag for edit in output.edits)
    for part in parts(output.recipe, beyond=is_computed):
        if isinstance(part, Stored):
            held[id(part)] = states.get(part.ref.source, {}).get(part.ref.path, {})
            continue
        inputs = [held.get(id(one), {}) for one in part.inputs]
        if isinstance(part.kernel, AddProduct) and (lora := _lora(part, draft)) is not None:
            if is_unmerged and part.kernel.by < 0:
                taken.append(Taken(lora, inputs[0]))
            elif part.kernel.by > 0:
                added.append(lora)
            held[id(part)] = _with(inputs[0], lora)
        elif isinstance(part.kernel, Convert):
            held[id(part)] = inputs[0]
        else:
            held[id(part)] = dict(_changed(inputs))
    after = held.get(id(output.recipe), {})
    home = output.home
    before = {} if home is None else states.get(home.source, {}).get(home.path, {})
    return LeafLoras(after, added, taken, bool(before or after or added or taken))


def _lora(part: Made, draft: Draft) -> HeldLora | None:
    """What a product adds; None of a LoRA that is stored nowhere."""
    a, *alpha = (_stored(one) for one in (part.inputs[1], *part.inputs[3:]))
    if a is None:
        return None
    assert isinstance(part.kernel, AddProduct)
    by = (part.kernel.by,)
    if a.source == SOURCE:  # where it stands may change before it is taken out again
        return HeldLora(by=by)
    at = str(alpha[0].path) if alpha and alpha[0] is not None else ""
    adapter = draft.fingerprints[a.source]
    return HeldLora(adapter=adapter, name=a.source, a=str(a.path), alpha=at, by=by)


def _stored(recipe: Recipe) -> LeafRef | None:
    return next((one.ref for one in parts(recipe) if isinstance(one, Stored)), None)


def _with(before: Held, lora: HeldLora) -> Held:
    """What is in a leaf once a LoRA was added, or taken out where its scale is negative."""
    known = before.get(_key(lora)) or before.get((lora.adapter, "", ""))
    if known is None:
        return {**before, _key(lora): lora}
    left = _without(known.by, lora.by[0])
    by_now = (*known.by, *lora.by) if left is None else left
    return {**before, _key(known): msgspec.structs.replace(known, by=by_now)}


def _without(held: tuple[float | None, ...], by: float | None) -> tuple[float | None, ...] | None:
    """What is left of scales once ``by``, of the other sign, has taken one out, or all; None if it fits none."""
    if by is None:
        return None
    for n, one in enumerate(held):
        if (one is None and by < 0) or (one is not None and math.isclose(one, -by, rel_tol=_SAME)):
            return (*held[:n], *held[n + 1 :])
    known = [one for one in held if one is not None]
    return () if known and math.isclose(math.fsum(known), -by, rel_tol=_SAME) else None


def _changed(inputs: list[Held]) -> Iterator[tuple[Key, HeldLora]]:
    """What is in a leaf that is computed of others: by how much, nobody says any more."""
    for held in sorted(inputs, key=lambda held: sum(len(lora.by) for lora in held.values())):
        for key, lora in held.items():
            if lora.by:
                yield key, msgspec.structs.replace(lora, by=(None,) * len(lora.by))
