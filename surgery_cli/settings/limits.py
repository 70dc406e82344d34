"""How much files may declare, where it is more than the table of limits says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from surgery_cli.errors import PlanError
from surgery_cli.inputs.limits import LIMITS
from surgery_cli.settings.declaration import Group, setting
from surgery_cli.settings.values import bytes_of, pairs_of
from surgery_cli.tree.nearness import nearest


def limits_of(texts: Sequence[str]) -> dict[str, int]:
    """What `--limit` was given, by name.

    >>> limits_of(["leaves=2000000", "metadata=1GiB"])
    {'leaves': 2000000, 'metadata': 1073741824}

    Raises:
        PlanError: there is no such limit, it is given twice, or its value is no whole number, or no size, from 1 on.
    """
    form = ("--limit", "NAME=VALUE", "leaves=2000000")
    found = {}
    for name, text in pairs_of(texts, *form, is_plain=True).items():
        if name not in LIMITS:
            near = nearest(name, list(LIMITS), 1)
            raise PlanError(
                f"there is no limit `{name}`",
                why=f"limits are {', '.join(LIMITS)}",
                fix=f"did you mean `--limit {near[0]}={text}`?" if near else "see docs/limits.md",
                field="limit",
            )
        if LIMITS[name].unit == "bytes":
            found[name] = bytes_of(text, f"`--limit {name}=4GiB`", "limit")
            continue
        digits = text.strip().replace("_", "").replace(",", "")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 18 or not int(digits):
            raise PlanError(
                f"`--limit {name}={text}` is no whole number from 1 on",
                fix=f"e.g. `--limit {name}={2 * LIMITS[name].default}`",
                field="limit",
            )
        found[name] = int(digits)
    return found


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much files may declare."""

    limit: Annotated[
        dict[str, int],
        setting(
            "How much of something a file may have, where that is more than is read by default, as `leaves=2000000`;"
            " docs/limits.md has all; repeatable.",
            Group.MEMORY,
            "NAME=VALUE",
            read=limits_of,
        ),
    ] = {}
