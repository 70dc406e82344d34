"""JSON that holds the SHA-256 of itself, as it is without that digest."""

from __future__ import annotations

from typing import Final

KEY: Final = "content"


def with_own_digest(raw: bytes) -> bytes:
    """The document with the digest of its content, which stands empty in ``raw``."""
    return raw.replace(_field(""), _field(_sha256(raw)), 1)


def holds_own_digest(raw: bytes, digest: str) -> bool:
    """True if the document is what it was when ``digest``, which it holds, was put in."""
    return _sha256(raw.replace(_field(digest), _field(""), 1)) == digest


def _field(digest: str) -> bytes:
    return f'"{KEY}": "{digest}"'.encode()


def _sha256(raw: bytes) -> str:
    from hashlib import sha256  # loads OpenSSL: not to print help

    return f"sha256:{sha256(raw).hexdigest()}"
