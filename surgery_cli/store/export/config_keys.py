"""Keys of Hugging Face's `config.json` that the shapes of weights tell, by the names that transformers gives these."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafSpec

_EMBEDDING: Final = r"(?:.*\.)?embed_tokens\.weight"
_HEAD: Final = r"lm_head\.weight"
_AXES: Final = (
    ("vocab_size", _EMBEDDING, 0),
    ("vocab_size", _HEAD, 0),
    ("hidden_size", _EMBEDDING, 1),
    ("hidden_size", _HEAD, 1),
    ("intermediate_size", r".*\.mlp\.(?:gate|up)_proj\.weight", 0),
    ("intermediate_size", r".*\.mlp\.down_proj\.weight", 1),
    ("head_dim", r".*\.self_attn\.[qk]_norm\.weight", 0),
)
"""A key, the weights that have an axis of that length, and which axis."""
_ROWS: Final = (
    ("num_attention_heads", r".*\.self_attn\.q_proj\.weight"),
    ("num_key_value_heads", r".*\.self_attn\.[kv]_proj\.weight"),
)
"""Of how many heads, each of `head_dim`, the first axis of such weights is."""
_LAYER: Final = re.compile(r"(?:.*?\.)??(?:layers|layer|h)\.(\d+)\..*")
"""The outermost number: parts of a layer may have numbers, too."""
LAYERS: Final = "num_hidden_layers"
_TIED: Final = "tie_word_embeddings"


class Told(NamedTuple):
    """What a config says of a key, and what weights tell: in words, too."""

    key: str
    said: int | bool
    now: int | bool
    why: str


def untrue(
    config: Mapping[str, Any],
    before: Mapping[LeafPath, LeafSpec],
    after: Mapping[LeafPath, LeafSpec],
) -> Iterator[Told]:
    """The keys that were true of the weights before, and are not of those after; parts of a config have their own.

    What was not true before, as names mean something else in that model, tells nothing now.
    """
    for prefix, part in _parts(config):
        told_before, told_after = _told(part, before), _told(part, after)
        for key, (value, why) in told_after.items():
            said = part.get(key)
            if told_before.get(key, (None, ""))[0] == said != value and type(said) is type(value):
                yield Told(f"{prefix}{key}", said, value, why)


def _parts(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield prefix, config
    for key, value in config.items():
        if isinstance(value, dict):
            yield from _parts(value, f"{prefix}{key}.")


def _told(
    config: Mapping[str, Any], tree: Mapping[LeafPath, LeafSpec]
) -> dict[str, tuple[int | bool, str]]:
    """What weights tell of keys, with the weight that does; nothing of a key where they disagree."""
    shapes = {str(p[0]): spec.shape for p, spec in tree.items() if len(p) == 1 and spec.has_array}
    found: dict[str, set[int]] = {}
    by: dict[str, str] = {}
    for key, pattern, axis in _AXES:
        for name, shape in _named(shapes, pattern, axis):
            found.setdefault(key, set()).add(shape[axis])
            by.setdefault(key, f"'{name}' is {[*shape]}")
    (size, *more) = found.get("head_dim", {_head_dim(config)})
    for key, pattern in _ROWS if size and not more else ():
        for name, shape in _named(shapes, pattern, 0):
            heads, rest = divmod(shape[0], size)
            found.setdefault(key, set()).update({heads, -1} if rest else {heads})
            by.setdefault(key, f"'{name}' has {shape[0]:,} rows, of heads of {size:,}")
    layers = layers_of(shapes)
    told: dict[str, tuple[int | bool, str]] = {
        key: (values.pop(), by[key]) for key, values in found.items() if len(values) == 1
    }
    if layers:
        told[LAYERS] = len(layers), "so many numbers do the names of layers have"
    if any(True for _ in _named(shapes, _EMBEDDING, 0)):
        has_head = any(True for _ in _named(shapes, _HEAD, 0))
        told[_TIED] = not has_head, f"there is {'a' if has_head else 'no'} 'lm_head.weight'"
    return told


def layers_of(names: Iterable[str]) -> set[int]:
    """The numbers of layers in the names of weights.

    >>> layers_of(["model.layers.0.mlp.h.3.weight", "model.layers.10.mlp.h.3.weight", "model.norm.weight"])
    {0, 10}
    """
    return {int(match[1]) for match in map(_LAYER.fullmatch, names) if match}


def _named(
    shapes: Mapping[str, tuple[int, ...]], pattern: str, axis: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    fits = re.compile(pattern).fullmatch
    return ((name, shape) for name, shape in shapes.items() if fits(name) and len(shape) > axis)


def _head_dim(config: Mapping[str, Any]) -> int:
    """The size of a head by a config alone, as transformers reads it; 0 if it does not say."""
    size, width, heads = (config.get(k) for k in ("head_dim", "hidden_size", "num_attention_heads"))
    if isinstance(size, int):
        return size
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else 0
