"""On which devices arrays are, and on which most: JAX computes with several that are on the same, in one order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import msgspec

from surgery_cli.inputs.json_decoding import decode_json
from surgery_cli.tree.sharding import EXPLICIT, Mesh, NamedSharding, usual_mesh
from surgery_cli.tree.specs import LeafKind, LeafSpec

DEVICE: Final = re.compile(
    r"(?:cpu:|gpu:|cuda:|rocm:|tpu:|TFRT_CPU_)(\d+)|TPU_(\d+)\(process=\d+,.*\)"
)
"""How JAX prints a device; its id is one of the groups."""


class Devices(msgspec.Struct, frozen=True):
    """The devices of an array, in the order of its mesh; ``ids`` is empty where they are not on record.

    ``explicit`` is the mesh where it is a part of the type that JAX gives the array: of axes that are `Explicit`.
    """

    count: int
    ids: tuple[int, ...] = ()
    explicit: Mesh | None = None

    def are_apart(self, others: Devices) -> bool:
        """True if these are known to be other ones, or the same in another order."""
        are_known = bool(self.ids and others.ids)
        return self.count != others.count or (are_known and self.ids != others.ids)

    def are_usable_with(self, others: Devices) -> bool:
        """False if JAX is known to compute nothing with arrays on these and on the others."""
        are_alike = self.count == 1 or self.explicit == others.explicit
        return are_alike and not self.are_apart(others)


def are_in_one_grid(one: str, other: str | None) -> bool:
    """True if two shardings are over the same devices in the same grid, whatever its axes are called.

    Over one of other sizes JAX may not find how to lay out what it computes of arrays on both.
    """
    here, there = map(NamedSharding.of_text, (one, other))
    sizes = [() if s is None else tuple(n for n in s.mesh.sizes if n > 1) for s in (here, there)]
    devices = devices_of(one)
    return one == other or (
        devices is not None and devices == devices_of(other) and sizes[0] == sizes[1]
    )


@lru_cache(maxsize=512)
def devices_of(text: str | None) -> Devices | None:
    """The devices of the sharding that Orbax's JSON says; None where it cannot be understood."""
    sharding = NamedSharding.of_text(text)
    if sharding is not None:
        mesh = sharding.mesh
        return Devices(mesh.size, mesh.ids, mesh if EXPLICIT in mesh.axis_types else None)
    try:
        fields = decode_json(text or "")
        is_single = fields["sharding_type"] == "SingleDeviceSharding"
        found = DEVICE.fullmatch(fields["device_str"]) if is_single else None
    except (msgspec.DecodeError, KeyError, TypeError):
        return None
    if not is_single:
        return None
    return Devices(1, () if found is None else (int(found[1] or found[2]),))


def usual_sharding(specs: Iterable[LeafSpec]) -> str | None:
    """Orbax's JSON for a sharding over the devices of most arrays, over more of them where as many are on others.

    Keys and arrays of one value (counters, placeholders) count only where there are no others: training has them on one
    device beside params on a mesh.
    """
    said = [(spec.sharding, spec) for spec in specs if spec.sharding is not None]
    large = (text for text, spec in said if spec.kind is LeafKind.ARRAY and spec.size > 1)
    texts = Counter(large) or Counter(text for text, _ in said)
    on = {text: found for text in texts if (found := devices_of(text)) is not None}
    count = Counter[Devices]()
    for text, devices in on.items():
        count[devices] += texts[text]
    most = max(count, key=lambda devices: (count[devices], devices.count), default=None)
    over = [text for text, devices in on.items() if devices == most]
    shardings = {text: NamedSharding.of_text(text) for text in over}
    each = ([one] * texts[text] for text, one in shardings.items() if one is not None)
    mesh = usual_mesh(one for some in each for one in some)
    named = (text for text, one in shardings.items() if one is not None and one.mesh == mesh)
    return next(named, next(iter(over), None))
