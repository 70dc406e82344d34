"""Which variables of a model have the shape of an input: caches, which are made for whole sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import msgspec

from surgery_cli.probing.model.calls import Call, Expected, Path


def with_longer_inputs(call: Call) -> Call:
    """The call with every axis of its inputs one longer, but for the last one of floats, which are features."""

    def longer(array: Any) -> jax.ShapeDtypeStruct:
        is_float = jnp.issubdtype(array.dtype, jnp.inexact)
        size = [n + 1 for n in array.shape]
        return jax.ShapeDtypeStruct(
            (*size[:-1], *array.shape[-1:]) if is_float else size, array.dtype
        )

    return msgspec.structs.replace(
        call,
        positional=tuple(map(longer, call.positional)),
        named={name: longer(array) for name, array in call.named.items()},
    )


def marked_derived(leaves: Mapping[Path, Expected], longer: Any) -> dict[Path, Expected]:
    """The variables, those marked whose shape is another in ``longer``, the structure and leaves with such inputs."""
    others = longer[1] if longer is not None else {}
    return {
        path: msgspec.structs.replace(
            leaf, is_derived=path in others and others[path].shape != leaf.shape
        )
        for path, leaf in leaves.items()
    }
