"""What `export` may be told, on the command line and as `output:` in a plan: in which format the result is written."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import bytes_of
from surgery_cli.words.advice import worded

SHARD_BYTES: Final = 5 * 1000**3
"""What Hugging Face's own writers put into one file, at most, where nothing else is said."""


def shard_of(text: str) -> int:
    """What `--shard` was given, in bytes. Raises as `bytes_of`."""
    return bytes_of(text, worded("{shard: 5GB}"), "shard")


class Export(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """In which format of other programs the result is written, once all edits are done."""

    format: Annotated[
        Literal["safetensors", "msgpack", "npz", "t5x"],
        setting(
            "The format: safetensors as Hugging Face's readers take them, Flax's msgpack, NumPy's npz, or T5X.",
            Group.LAYOUT,
            option="--to",
        ),
    ]
    shard: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | str | None,
        setting(
            "Of safetensors in a directory, how large each file is at most; 5GB if left out.",
            Group.LAYOUT,
            "SIZE",
            option="--shard",
            read=shard_of,
        ),
    ] = None

    @property
    def shard_bytes(self) -> int:
        """The most bytes of a file's values. Raises as `bytes_of`."""
        if self.shard is None:
            return SHARD_BYTES
        return shard_of(self.shard) if isinstance(self.shard, str) else self.shard

    def document(self) -> dict[str, Any]:
        """As plain values, defaults left out."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found
