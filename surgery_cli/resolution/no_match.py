"""What to say of a pattern that names nothing: which key is strange, and which paths are near."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from surgery_cli.draft.recipe import SOURCE, Draft
from surgery_cli.errors import PlanError, Problem
from surgery_cli.tree.nearness import nearest
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.words.advice import worded
from surgery_cli.words.lists import quoted
from surgery_cli.words.tasks import recipe_for_layers

_SHOWN_PATHS = 4


def no_match(
    pattern: PathPattern,
    printed: Mapping[LeafPath, str],
    nodes: Iterable[LeafPath],
    field: str | None = None,
    more: str = "",
) -> Problem:
    """What to say of a pattern that names none of the leaves in ``printed`` (by path, as their keys are).

    ``nodes`` are those above the leaves; ``more`` is added to the advice where no path is near.
    """
    if pattern.text.strip("/") == ".":
        return Problem(
            "'.' matches nothing",
            why="it is how the root prints, and no key is called so",
            fix="write `**`, which names every leaf, also of a checkpoint that is one array",
            field=field,
        )
    texts = {text: path for path, text in printed.items()}
    for node in filter(None, nodes):
        texts.setdefault(node.text, node)
    keys = {key for text in texts for key in text.split("/")}
    typed = [] if pattern.is_regex else pattern.text.strip("/").split("/")
    strange = [key for key in typed if key not in keys and not any(c in key for c in "*?[{%")]
    unmatched = [key for key in typed if any(c in key for c in "*?[{") and _is_of_none(key, keys)]
    if meant := _meant(pattern, printed, field):
        return meant
    similar = nearest(strange[0], keys) if strange else []
    is_blind = strange and not similar and not pattern.is_literal
    close = [] if is_blind else nearest(pattern.text, texts)  # of the wildcards' part alone
    why = "nothing in the tree is close to it"
    if similar:
        why = f"no key is called '{strange[0]}'; the nearest: {quoted(similar, _SHOWN_PATHS)}"
    elif strange:
        why = f"no key is called '{strange[0]}'"
    elif pattern.text.strip("/") in texts:
        why = "a path has these keys, but `*`, `?`, `[`, `{` are wildcards and `%2F` is a slash"
    elif unmatched:
        why = f"'{unmatched[0]}' matches no key"
    elif close:
        why = "its keys exist, but not at this place"
    layers = "" if pattern.is_regex else recipe_for_layers(pattern.text, keys)
    return Problem(
        f"'{pattern.text}' matches nothing",
        why=why,
        fix=f"the nearest paths are {quoted((texts[text] for text in close), _SHOWN_PATHS)}{layers}"
        if close
        else worded("`surgery inspect` lists the paths{}{}", more, layers),
        field=field,
    )


def moved_since(pattern: PathPattern, draft: Draft, field: str | None = None) -> Problem | None:
    """What to say of a pattern that names leaves of the source, and none where they stand by now; None of others."""
    if draft.texts is draft.source_tree.texts:
        return None
    stood = {path: draft.standing(path).text for path in draft.source_tree}
    meant = pattern.named(stood)
    if not meant:
        return None
    here = {
        out.home.path: path
        for path, out in draft.leaves.items()
        if out.home is not None and out.home.source == SOURCE
    }
    old = next((path for path in meant if path in here), next(iter(meant)))
    why = f"an earlier edit has taken '{stood[old]}' away"
    fix = "put this edit in front of that one, or leave it out"
    if old in here:
        why = f"an earlier edit has moved '{stood[old]}' to '{here[old]}'"
        fix = "name the place where it stands by now, or put this edit in front of that one"
    return Problem(f"'{pattern.text}' matches nothing", why, fix, field=field)


def _is_of_none(key: str, keys: Iterable[str]) -> bool:
    """True if a key with wildcards names none of the ``keys``."""
    try:
        return not PathPattern(key).named({LeafPath((one,)): one for one in keys})
    except PlanError:  # braces that hold slashes
        return False


def _meant(
    pattern: PathPattern, printed: Mapping[LeafPath, str], field: str | None
) -> Problem | None:
    """What to say where it is plain how a pattern was meant; None where it is not."""
    if not pattern.is_regex and (glued := _glued(pattern.text)):
        why = "`**` spans keys only where it stands alone between slashes; elsewhere it is `*`"
        fix = f"write '{glued}'"
        if not PathPattern(glued).named(printed):
            fix = f"`surgery inspect` lists the paths; '{glued}' matches nothing either"
    elif better := _of_leaves(pattern, printed):
        why = "a regular expression names leaves, by their whole paths, and these are nodes"
        fix = f"write '{better}' for all below them"
    elif slashed := _over_slashes(pattern, printed):
        why = f"a wildcard ends at every printed slash, and the key '{slashed[0]}' holds one"
        fix = f"write '{slashed[1]}'"
    else:
        return None
    return Problem(f"'{pattern.text}' matches nothing", why=why, fix=fix, field=field)


def _of_leaves(pattern: PathPattern, printed: Mapping[LeafPath, str]) -> str:
    """The expression for what stands below the nodes that a regular one matches; '' if it matches none."""
    better = f"{pattern.text.rstrip('$/')}/.*"
    return better if pattern.is_regex and PathPattern(better).named(printed) else ""


def _over_slashes(pattern: PathPattern, printed: Mapping[LeafPath, str]) -> tuple[str, str] | None:
    """A key that holds slashes, and the pattern that goes over these; None if that names nothing."""
    if pattern.is_regex or pattern.is_spelled or "**" in pattern.text:
        return None
    whole = {path: "/".join(str(k).replace("/", "\0") for k in path) for path in printed}
    for path, match in pattern.named(whole).items():
        keys = pattern.text.strip("/").split("/")
        for n, key in enumerate(map(str, match.node)):
            if "/" in key and n < len(keys):
                better = "/".join([*keys[:n], f"{keys[n]}{'/*' * key.count('/')}", *keys[n + 1 :]])
                if path in PathPattern(better).named(printed):
                    return key, better
    return None


def zeros_missed(
    pattern: PathPattern,
    named: Collection[LeafPath],
    printed: Mapping[LeafPath, str],
    field: str | None = None,
) -> Problem | None:
    """What to say where a range passes over numbers that have zeros in front: `{0..11}` of `layers_00`.

    ``named`` are the leaves in ``printed`` that the pattern names.
    """
    if all(numbers.width for numbers in pattern.ranges.values()):
        return None
    meant = PathPattern(pattern.text, takes_zeros=True).named(printed)
    missed = next((path for path in meant if path not in named), None)
    if missed is None:
        return None
    better = pattern.text
    for group, numbers in pattern.ranges.items():
        found = meant[missed].groups[group]
        if not numbers.width and found.startswith("0") and len(found) > 1:
            old = next(
                iter(re.findall(rf"{{0*{numbers.first}\.\.0*{numbers.last}(?:\.\.\d+)?}}", better))
            )
            better = better.replace(old, numbers.padded(len(found)), 1)
    return Problem(
        f"'{pattern.text}' does not name '{missed}'",
        why="its number has zeros in front, and the range's have none",
        fix=f"write '{better}'",
        path=str(missed),
        field=field,
    )


def _glued(text: str) -> str:
    """The pattern with `**` as keys of their own where it stands beside other characters; '' if it does nowhere."""
    keys = text.split("/")
    apart = [re.sub(r"^\*\*(?=[^*])", "**/", key) for key in keys]
    apart = [re.sub(r"(?<=[^*/])\*\*$", "*/**", key) for key in apart]
    return "/".join(apart) if apart != keys else ""
