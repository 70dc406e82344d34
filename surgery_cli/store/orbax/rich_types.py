"""Orbax's rich-type record (``value_metadata_tree``): containers with their classes, as JSON inside JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from surgery_cli.tree.nested import Branch, nested
from surgery_cli.tree.paths import Key, LeafPath

Node = Any
"""A JSON node: a dict or list of children, a recorded class with ``entries``, or a recorded leaf."""


def rewritten_tree(
    old: Node, values: Mapping[LeafPath, Any], origins: Mapping[LeafPath, LeafPath]
) -> Node:
    """The record for a new tree: every container keeps the class that it had where its leaves came from.

    Args:
        old: The record of the source.
        values: ``value_metadata`` of every leaf of the new tree.
        origins: For leaves that were there before, where they stood.
    """
    models: dict[LeafPath, Node] = {}
    for path, origin in origins.items():
        new, was = path, origin
        while new and was and new[-1] == was[-1]:
            new, was = new.parent, was.parent
            models.setdefault(new, _find(old, was))
    return _render(LeafPath(), nested(values), old, models)


def _render(path: LeafPath, node: Any, old: Node, models: Mapping[LeafPath, Node]) -> Node:
    if not isinstance(node, Branch):
        return {"category": "custom", "clazz": "ValueMetadataEntry", "data": node}
    children = {key: _render(path / (key,), child, old, models) for key, child in node.items()}
    model = models.get(path) or _find(old, path)
    if isinstance(model, dict) and "category" in model and "entries" in model:
        if model["category"] == "namedtuple":
            return {
                **model,
                "entries": [{"key": str(k), "value": v} for k, v in children.items()],
            }
        return {**model, "entries": [children[key] for key in sorted(children, key=_order)]}
    if all(isinstance(key, int) for key in children) and children:
        return [children[key] for key in sorted(children, key=_order)]
    return {str(key): child for key, child in children.items()}


def _order(key: Key) -> int:
    return key if isinstance(key, int) else 0


def _find(node: Node, path: tuple[Key, ...]) -> Node:
    """The record at ``path``; None if there is none."""
    for key in path:
        if isinstance(node, dict) and "entries" in node and "category" in node:
            node = _entry(node["entries"], key)
        elif isinstance(node, dict):
            node = node.get(str(key))
        elif isinstance(node, list) and isinstance(key, int) and key < len(node):
            node = node[key]
        else:
            return None
    return node


def _entry(entries: list[Any], key: Key) -> Node:
    for number, entry in enumerate(entries):
        if isinstance(entry, dict) and entry.get("key") == str(key) and "value" in entry:
            return entry["value"]
        if number == key and not (isinstance(entry, dict) and "value" in entry and "key" in entry):
            return entry
    return None
