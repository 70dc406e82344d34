"""Files that say how an edit is meant, as an order does: small, and read before anything is decided."""

from __future__ import annotations

import hashlib

from surgery_cli.errors import PlanError
from surgery_cli.inputs.addresses import address
from surgery_cli.inputs.buckets import path_at
from surgery_cli.inputs.limits import PLAN
from surgery_cli.inputs.regular_files import refuse_special
from surgery_cli.store import filesystem


class SmallFiles:
    """Those of one run, each read once: what was decided by one stands in the record."""

    def __init__(self) -> None:
        self._content: dict[str, bytes] = {}

    def read(self, text: str) -> bytes:
        """What stands in a small file, here or in a bucket.

        Raises:
            PlanError: it is no regular file, or too large.
            OSError: it cannot be read.
        """
        if text not in self._content:
            path = path_at(address(text))
            filesystem.forget(path)
            refuse_special(path, PlanError)
            PLAN.check(filesystem.size(path), f"'{path}'", PlanError)
            self._content[text] = filesystem.read(path)
        return self._content[text]

    @property
    def fingerprints(self) -> dict[str, str]:
        """By what each is known again, by its name in the plan: what it holds, whenever it was written."""
        return {
            text: f"sha256:{hashlib.sha256(raw).hexdigest()}" for text, raw in self._content.items()
        }
