"""What TensorStore's drivers say where they make nothing of the credentials that they find, and what helps."""

from __future__ import annotations

import os
import re
from typing import Final

from surgery_cli.store.filesystem.amazon_s3 import AmazonS3
from surgery_cli.store.filesystem.google_settings import KEY_FILE
from surgery_cli.store.filesystem.google_storage import GoogleStorage

_OF_GOOGLE: Final = re.compile(
    r"credentials file|Could not (load the private key|create the PEM buffer)"
    r"|Invalid (GoogleServiceAccountCredentials|RefreshToken|OAuthResponse)"
    r"|Failed to parse service account response"
)
_OF_AMAZON: Final = re.compile(r"Failed to get credentials")


def mend_of(said: str) -> str:
    """Which credentials to give instead; '' where it is not about them.

    >>> mend_of("UNKNOWN: Error reading local file"), mend_of("Failed to get credentials from provider")[:5]
    ('', 'give ')
    """
    if _OF_AMAZON.search(said):
        return AmazonS3.words.credentials
    if not _OF_GOOGLE.search(said):
        return ""
    named = os.environ.get(KEY_FILE)
    if not named:
        return GoogleStorage.words.credentials
    return f"let {KEY_FILE}, now '{named}', name a key file of a service account or of a user"
