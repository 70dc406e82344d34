"""What previews and reports say beside the edits: each sentence is either a consequence or a remark.

Whoever makes one decides which; there is no other kind, and no plain text is a note.
"""

from __future__ import annotations

from surgery_cli.words.advice import Text


class Consequence(Text):
    """What comes of a run beyond what was typed, such that who does not read it may take the result for another.

    Something else is done as well, is left undone or left out, is taken for granted, or comes along damaged. It is
    said with ``--quiet``, too.
    """


class Remark(Text):
    """What somebody may like to know, and the result is no other for it.

    That what was asked is done, what was read or tried for that, what it costs, and advice.
    """


Note = Consequence | Remark
