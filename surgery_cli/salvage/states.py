"""What is said of what was found: on which way, how much of it is left, and what proves it."""

from __future__ import annotations

from typing import Literal, TypeAlias

Route: TypeAlias = Literal[
    "manifest",
    "process manifest",
    "manifest not renamed",
    "earlier version",
    "scan for nodes",
    "leaf folder",
    "file not renamed",
]
"""How a value was found, best first. What a save had not renamed yet is as whole as its bytes are."""

State: TypeAlias = Literal["whole", "partly", "lost"]
"""How much of a leaf is left."""

Proof: TypeAlias = Literal["digest", "checksum", "decodes"]
"""What shows that the values of a leaf are those that were saved; that they decode is the least."""

Assumption: TypeAlias = Literal[
    "bytes are missing at its end alone",
    "bytes were added at its end alone",
    "nothing before the damage is displaced",
    "what stands behind the damage has its own names",
    "they have the shape and dtype of the leaf that describes them",
]
"""What must be so of what is damaged for a leaf without a checksum to be what was saved; nothing in it shows that."""
