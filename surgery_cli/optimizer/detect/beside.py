"""Trees like the params beside the optimizer state: copies of them, or taken for such."""

from __future__ import annotations

from itertools import takewhile
from typing import Final

import msgspec

from surgery_cli.draft.assumptions import copy_of
from surgery_cli.optimizer.detect.mirrors import Mirror
from surgery_cli.optimizer.detect.params_root import words_of
from surgery_cli.optimizer.knowledge.kinds import BESIDE, Field
from surgery_cli.tree.paths import LeafPath

OF_PARAMS: Final = frozenset(
    {"param", "params", "model", "models", "variables", "weights", "network", "net"}
    | {"averaged", "ema", "polyak", "shadow", "swa", "target", "teacher", "student"}
)
"""Words of which a name with one says that what stands there are params."""

WHICH: Final = frozenset(
    {"average", "avg", "base", "best", "copy", "fast", "frozen", "init", "initial", "old"}
    | {"online", "pretrained", "prev", "previous", "reference", "slow"}
)
"""Words that say no more than which params these are."""


def copy_beside(match: Mirror, *, needs_of: bool = False) -> Field:
    """What is known of a tree that mirrors params beside the optimizer state; for ``needs_of`` see ``copy_of``.

    An optimizer of the script's own may keep its moments there, which are no copies of the params. Nothing but its name
    says that a tree is one.
    """
    if is_named_as_params(match.node, match.root):
        return BESIDE
    return msgspec.structs.replace(
        BESIDE, provided=copy_of(match.root, match.node, needs_of=needs_of)
    )


def is_named_as_params(node: LeafPath, root: LeafPath) -> bool:
    """True if all words by which the paths differ say that the node, too, has params, as those at ``root`` are.

    >>> of = LeafPath(("params", "critic"))
    >>> [is_named_as_params(LeafPath((name,)), of) for name in ("ema_0.999", "target_critic_params", "exp_avg", "v")]
    [True, True, False, False]
    """
    pairs = zip(node, root, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    words = {word for key in node[shared:] for word in words_of(key) if not _is_number(word)}
    own = {word for key in root for word in words_of(key)}
    return bool(words & OF_PARAMS) and words <= OF_PARAMS | WHICH | own


def _is_number(word: str) -> bool:
    return word.replace(".", "").isdigit()
