"""What must not change: every name, byte, size and modification time of a source."""

import hashlib
from pathlib import Path


def everything_of(path: Path) -> dict[str, tuple[int, int, str]]:
    """Size, modification time and digest of every file and directory at and below ``path``."""
    found = {}
    for file in [path, *sorted(path.rglob("*"))]:
        status = file.stat()
        content = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
        size = status.st_size if file.is_file() else 0
        found[str(file.relative_to(path))] = (size, status.st_mtime_ns, content)
    return found
