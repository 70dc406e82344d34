"""How many bytes a run moves, by way, and what it asks services for: estimates from metadata."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import UNSET, UnsetType

from surgery_cli.draft.expression import Recipe, stored_in
from surgery_cli.draft.kernel import Window
from surgery_cli.engine.decoding import is_read_once
from surgery_cli.engine.read_forecast import bytes_read
from surgery_cli.engine.sights import judged_reads
from surgery_cli.inputs.buckets import path_at
from surgery_cli.settings.run import Options
from surgery_cli.store import filesystem
from surgery_cli.store.export.companions import companions
from surgery_cli.store.filesystem.request_counts import Requests, requests_so_far
from surgery_cli.store.write.carried_files import carried_files, carried_to, unchosen_files
from surgery_cli.store.write.item_plan import PlannedLeaf, Way
from surgery_cli.surgery.memory import bytes_to_use
from surgery_cli.surgery.preparation import Prepared
from surgery_cli.surgery.record_costs import bytes_to_check
from surgery_cli.surgery.request_minutes import minutes
from surgery_cli.surgery.requests import requests_of_run
from surgery_cli.surgery.sealing_costs import bytes_to_seal
from surgery_cli.surgery.space import is_all_copied, is_copied


class Traffic(msgspec.Struct, frozen=True):
    """How many bytes a run moves, by way, and what services are asked for; as ``reports.Preview`` has it."""

    bytes_read: int
    bytes_written: int
    bytes_linked: int
    bytes_copied: int
    bytes_read_at_most: int | UnsetType = UNSET
    bytes_read_to_seal: int | UnsetType = UNSET
    requests: Requests | UnsetType = UNSET
    minutes: float | UnsetType = UNSET
    bytes_per_second: int | UnsetType = UNSET


def costs(
    prepared: Prepared, options: Options, destination: Path | None, before: Requests
) -> Traffic:
    """Estimates from metadata; files cannot be shared with a destination on another filesystem.

    ``before``: what this process had asked services for before it looked at the source.
    """
    written = linked = copied = raw = 0
    read = sum(look.bytes for look in prepared.looked)
    memory_bytes = bytes_to_use(options.memory_bytes)
    computed: list[Recipe] = []
    made: list[PlannedLeaf] = []
    partly: list[tuple[Recipe, Sequence[Window]]] = []
    for name, plan in prepared.plans.items():
        for leaf in plan.computed:
            written += leaf.written_bytes
            made += [leaf] if leaf.is_read_whole else []
            if is_read_once(leaf, memory_bytes):
                read += sum(stored.spec.bytes for stored in stored_in(leaf.recipe))
                continue
            if leaf.referred is None or leaf.referred.is_read:
                computed.append(leaf.recipe)
            else:
                partly.append((leaf.recipe, leaf.referred.written))
        written += sum(leaf.spec.bytes for leaf in plan.packed)
        computed += [leaf.recipe for leaf in plan.packed]
        made += plan.packed
        as_stored = plan.of(Way.RAW)
        if prepared.compact[name]:
            as_stored = [leaf for leaf in plan.leaves if leaf.taken]
        else:
            costs_of = prepared.references[name]
            copied += costs_of.outside_bytes
            for place, count in costs_of.shared_bytes.items():
                if is_copied(place, prepared, destination, options):
                    copied += count
                else:
                    linked += count
        raw += sum(leaf.taken_bytes for leaf in as_stored)
    written, read = written + raw, read + raw
    judged = judged_reads(prepared.draft.checks, made, memory_bytes)
    partly += [(one.recipe, one.blocks) for one in judged]
    values = bytes_read(computed, partly, memory_bytes)
    read += bytes_to_check(prepared, memory_bytes)
    at_most = read + values.at_most if values.at_most > values.usually else UNSET
    read += values.usually
    linked_beside, copied_beside = _beside_leaves(prepared, destination)
    linked, copied = linked + linked_beside, copied + copied_beside
    if is_all_copied(prepared, destination, options):
        linked, copied = 0, copied + linked
    to_seal = bytes_to_seal(prepared, options, linked + copied + raw)
    read, at_most = read + to_seal, at_most if at_most is UNSET else at_most + to_seal
    moved = (read, written, linked, copied, at_most, to_seal or UNSET)
    requests = requests_of_run(prepared, options, destination, requests_so_far() - before)
    if requests is None:
        return Traffic(*moved)
    rate = options.bytes_per_second
    needed = minutes(requests, rate)
    return Traffic(*moved, requests, round(needed, 2), rate)


def _beside_leaves(prepared: Prepared, destination: Path | None) -> tuple[int, int]:
    """Bytes of files that are no leaves' and come along, linked and copied."""
    linked = copied = 0
    if not prepared.is_export:
        items = (plan.item for plan in prepared.kept_plans.values())
        carried = carried_files(prepared.checkpoint, items, left_out=prepared.left_out)
        unchosen = unchosen_files(prepared.checkpoint)
        to = destination or prepared.checkpoint.location.root
        copied += sum(file.size for file in carried_to(to, carried))
        linked += sum(file.size for file in carried_to(to, unchosen))
    if prepared.output is not None:
        target = None if destination is None else path_at(str(destination))
        beside = companions(prepared.checkpoint, prepared.output, target).carried
        copied += sum(map(filesystem.size, beside))
    return linked, copied
