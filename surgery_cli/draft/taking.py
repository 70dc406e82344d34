"""What edits take of something that a plan takes as a whole: an adapter, of which each edit merges a part."""

from __future__ import annotations

import msgspec

from surgery_cli.errors import Problem
from surgery_cli.tree.paths import LeafPath
from surgery_cli.words.pages import DocsPage


class Taking(msgspec.Struct, frozen=True):
    """The part that an edit (counted from 0) takes of a source; '' for the checkpoint that is edited.

    ``offered`` are the leaves of which the plan leaves none out unless it says so, each with what is wrong if no edit
    takes it. ``taken`` are those that this one takes, or leaves out by name. All are called as they were stored.
    ``may_leave``: it says that the rest is left out. ``text`` is whose they are, ``page`` what tells of such edits.
    """

    edit: int
    operation: str
    text: str
    source: str
    offered: dict[LeafPath, Problem]
    taken: frozenset[LeafPath]
    may_leave: bool
    page: DocsPage
