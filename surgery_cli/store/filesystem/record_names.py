"""How the record of what is a single file, or a bare directory, is called: it stands beside that."""

from __future__ import annotations

from surgery_cli.store.filesystem.listing import RECORD, step_name


def name_of_record(name: str) -> str:
    """The name of the record beside a file, or a bare directory, of that name.

    That of a step with a prefix is hidden: Flax takes all that begins with the prefix for steps, and this for the last.

    >>> name_of_record("new.msgpack"), name_of_record("checkpoint_5")
    ('new.msgpack.surgery.json', '.checkpoint_5.surgery.json')
    """
    step = step_name(name)
    return f"{'.' if step is not None and step.prefix else ''}{name}.{RECORD}"
