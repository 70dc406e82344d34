"""Names under which tools write a file before it gets its own: a finished checkpoint has none of them."""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = {
    "TensorStore": r".+\.__lock",
    "rsync": r"\..+\.[A-Za-z0-9]{6}",
    "gcloud storage": r".+_\.gstmp",
    "aws s3": r"(?=.*[A-Fa-f][^.]*$).+\.[0-9A-Fa-f]{8}",
    "rclone": r".+\.[A-Za-z0-9]{8}\.partial",
    "azcopy": r"\.azDownload-.+",
    "huggingface_hub": r".+\.incomplete",
    "a process that still has it open": r"\.nfs[0-9a-f]{16,}",
}
"""Source: rsync's and rclone's manuals, gsutil's `GetTempFileName`, s3transfer's `random_file_extension`, azcopy's
`azcopyTempDownloadPrefix`; NFS keeps what is deleted and still open under a name of its own."""

_PATTERNS: Final = {whose: re.compile(pattern, re.DOTALL) for whose, pattern in _NAMES.items()}
_WRITERS: Final = frozenset({"TensorStore"})


def writer_of(name: str) -> str | None:
    """Who gives a file such a name until it is written; None for any other name.

    >>> writer_of(".manifest.ocdbt.Xy12Qa"), writer_of("0.0.aB3dE5f7"), writer_of("manifest.ocdbt.__lock")
    ('rsync', 'aws s3', 'TensorStore')
    >>> writer_of("0.0"), writer_of(".zarray"), writer_of("1.12345678"), writer_of("manifest.ocdbt")
    (None, None, None, None)
    """
    return next((whose for whose, one in _PATTERNS.items() if one.fullmatch(name)), None)


def is_copy(whose: str) -> bool:
    """True for tools that copy a checkpoint as it is: under such names, a part of it has not come whole."""
    return whose not in _WRITERS
