"""How a path is written so that it can be read, typed and pasted: a pattern that names it, in printable characters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

SPECIAL: Final = "*?[{}"
"""Characters that stand for themselves only in brackets."""
_ODD: Final = re.compile(r"[^\w.,:;~@#$&()+'\"=<>|!^\\`\]/-]", re.ASCII)
"""What may need an escape; most paths have none of it."""
_SPELLED: Final = re.compile("%2F|%25", re.IGNORECASE)
_UTF_8: Final = re.compile(
    "%25|%[01][0-9A-F]|%7F|%[CD][0-9A-F]%[89AB][0-9A-F]"
    "|%E[0-9A-F](?:%[89AB][0-9A-F]){2}|%F[0-7](?:%[89AB][0-9A-F]){3}",
    re.IGNORECASE,
)


def typed(keys: Sequence[str], *, is_exact: bool = False) -> str:
    r"""The pattern of the path with these keys, which can be printed: what is special in its keys is escaped.

    A slash inside a key stays one, unless ``is_exact``, or unless something else has to be spelled out.

    >>> typed(["layers", "[x]"]), typed(["%2F"]), typed(["a/b"]), typed(["a/b"], is_exact=True)
    ('layers/[[]x]', '%252F', 'a/b', 'a%2Fb')
    >>> typed(["line\nbreak"]), typed(["a", "", "b "]), typed(["re:x"]), typed(["50%"])
    ('line%0Abreak', 'a/{,}/b[ ]', '[r]e:x', '50%')
    """
    text = "/".join(keys)
    if is_plain(text) and not (is_exact and text.count("/") >= len(keys)):
        return text
    if is_exact or _has_escapes(text) or not text.isprintable() or text.strip("/") != text:
        keys = [spelled(key) for key in keys]
    found = "/".join(map(_typed, keys))
    return f"[r]{found[1:]}" if found.startswith("re:") else found


def is_plain(text: str) -> bool:
    """True if the keys joined by slashes are shown as they are; False where it takes a closer look."""
    is_open = text == "" or text[0] == "/" or text[-1] == "/" or "//" in text
    return not (is_open or text.startswith("re:") or _ODD.search(text))


def _typed(key: str) -> str:
    inner = "".join(f"[{c}]" if c in SPECIAL else c for c in printable(key.strip(" ")))
    before, after = len(key) - len(key.lstrip(" ")), len(key) - len(key.rstrip(" "))
    if not inner:
        return "[ ]" * before or "{,}"
    return "[ ]" * before + inner + "[ ]" * after


def printable(text: str) -> str:
    """The text with the escape of every character that cannot be printed."""
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(character: str) -> str:
    raw = b"" if character.isprintable() else character.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in raw) or character


def spelled(key: str) -> str:
    """A key without slashes: these are ``%2F``, and percent signs ``%25``."""
    return key.replace("%", "%25").replace("/", "%2F")


def is_spelled(text: str) -> bool:
    """True if slashes and percent signs in keys are spelled out in the text."""
    return _SPELLED.search(text) is not None


def shown(exact: str) -> str:
    """The same pattern as ``typed`` gives it that is not exact: slashes in keys are left, if nothing else is spelled.

    >>> shown("a%2Fb/[*]"), shown("a%2Fb/100%2525")
    ('a/b/[*]', 'a%2Fb/100%2525')
    """
    plain = decode(exact)
    return exact if _has_escapes(plain) or plain.strip("/") != plain else plain


def _has_escapes(text: str) -> bool:
    return is_spelled(text) or unescaped(text) != text


def decode(segment: str) -> str:
    """A key from its unambiguous spelling; only ``%2F`` and ``%25`` decode."""
    return _SPELLED.sub(lambda m: "%" if m[0] == "%25" else "/", segment)


def unescaped(text: str) -> str:
    r"""The text with characters that cannot be printed in the place of their escapes; all else stays.

    >>> unescaped("line%0Abreak"), unescaped("a%20b%C3%BC"), unescaped("%250A")
    ('line\nbreak', 'a%20b%C3%BC', '%250A')
    """
    return _UTF_8.sub(_character, text) if "%" in text else text


def _character(escape: re.Match[str]) -> str:
    """The character of an escape if it cannot be printed, else the escape."""
    try:
        said = bytes.fromhex(escape[0].replace("%", "")).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return escape[0]
    return escape[0] if said.isprintable() else said
