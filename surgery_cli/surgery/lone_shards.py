"""What is said of a source that is one file of several: it is opened as it was named, and is not all."""

from __future__ import annotations

from surgery_cli.inputs.buckets import path_at
from surgery_cli.store.files.lone_shards import LoneShard, lone_shard
from surgery_cli.store.locate.file_formats import FileFormat
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.store.open.file_item import FileItem
from surgery_cli.words.notes import Consequence
from surgery_cli.words.pages import DocsPage

_IN_SHARDS = (FileFormat.SAFETENSORS, FileFormat.TORCH)


def lone_shard_notes(checkpoint: Checkpoint) -> list[Consequence]:
    """A note for a checkpoint that is one file of a model of several."""
    location, items = checkpoint.location, checkpoint.items.values()
    if location.shape != "file":
        return []
    if not any(isinstance(item, FileItem) and item.format in _IN_SHARDS for item in items):
        return []
    # the cache of a hub has links with the names of shards, to files with the names of digests
    places = dict.fromkeys((location.root, path_at(location.argument)))
    return [_note(shard) for shard in filter(None, map(lone_shard, places))][:1]


def _note(shard: LoneShard) -> Consequence:
    by = f"as '{shard.said_by}' beside it says" if shard.said_by else "as its name says"
    others = "other is" if shard.files == 2 else f"{shard.files - 1:,} others are"
    return Consequence(
        DocsPage.OTHER_FORMATS,
        f"'{shard.file.name}' is one of {shard.files:,} files of a model, {by}, and the {others} not opened:"
        f" '{shard.file.parent}' opens all of them",
    )
