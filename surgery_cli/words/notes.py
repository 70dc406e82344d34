"""What previews and reports say beside the edits: each sentence is either a consequence or a remark.

Whoever makes one decides which, and names the page that explains it; there is no other kind, and no plain text is a
note.
"""

from __future__ import annotations

from typing import Self

from surgery_cli.words.advice import Span, Text
from surgery_cli.words.pages import DocsPage


class Explained(Text):
    """A sentence with the page on which more is said; as a string it is the sentence alone."""

    __slots__ = ("page",)
    page: DocsPage

    def __new__(cls, page: DocsPage, *parts: str | Span) -> Self:
        text = super().__new__(cls, *parts)
        text.page = page
        return text

    def __reduce__(self) -> tuple[type[Self], tuple[str | Span, ...]]:
        return type(self), (self.page, *self.parts)

    @property
    def line(self) -> str:
        """The sentence and its page, as they are printed."""
        return f"{self} [{self.page}]"

    def saying(self, text: str) -> Self:
        """The same note in other words."""
        return type(self)(self.page, text)


class Consequence(Explained):
    """What comes of a run beyond what was typed, such that who does not read it may take the result for another.

    Something else is done as well, is left undone or left out, is taken for granted, or comes along damaged. It is
    said with ``--quiet``, too.
    """

    __slots__ = ()


class Remark(Explained):
    """What somebody may like to know, and the result is no other for it.

    That what was asked is done, what was read or tried for that, what it costs, and advice.
    """

    __slots__ = ()


Note = Consequence | Remark
