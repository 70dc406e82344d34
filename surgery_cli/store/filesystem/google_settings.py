"""The variables by which ``gs://`` is found and asked: two libraries go by them, each by its own."""

from __future__ import annotations

import os
import re
from typing import Final

import msgspec

from surgery_cli.store.filesystem.wrong_settings import WrongSetting

KEY_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_OF_GOOGLE: Final = re.compile(r"https?://([\w-]+\.)?googleapis\.com(/|:|$)")
"""Google's own service, also by the ways to it from inside of a network (`restricted`, `private`)."""
_HOSTS: Final = {"STORAGE_EMULATOR_HOST": "gcsfs", "TENSORSTORE_GCS_HTTP_URL": "TensorStore"}
"""Which variable says to whom where the service is."""
_AS_UNSET: Final = ("", "default", "empty")
"""What gcsfs takes for no emulator at all."""


def check_settings() -> None:
    """See that both libraries go to the same service, and find there who asks, before they are set to work.

    Raises:
        WrongSetting: one of them alone would go to an emulator, and the other to Google's own service; or the file of
            credentials that was named cannot be one.
    """
    where = {name: os.environ.get(name, "") for name in _HOSTS}
    elsewhere = {name: url for name, url in where.items() if _is_elsewhere(url)}
    if len(elsewhere) == 1:
        ((given, url),) = elsewhere.items()
        (lacking,) = _HOSTS.keys() - elsewhere.keys()
        raise WrongSetting(
            f"{given}={url} sends {_HOSTS[given]} to an emulator, and {lacking} is not set:"
            f" {_HOSTS[lacking]} would ask Google",
            f"set {lacking} to the same address, or unset {given}",
        )
    _check_key_file()


def _is_elsewhere(url: str) -> bool:
    return url not in _AS_UNSET and not _OF_GOOGLE.match(url)


def _check_key_file() -> None:
    path = os.environ.get(KEY_FILE, "")
    is_pipe = os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)
    if not path or is_pipe:  # which can be read once, by who needs it
        return
    why = ""
    try:
        with open(path, "rb") as file:
            found = msgspec.json.decode(file.read())
        if not isinstance(found, dict):
            why = "is no JSON object"
    except msgspec.DecodeError as error:
        why = f"is not JSON: {error}"
    except OSError as error:
        why = f"cannot be read: {error.strerror}"
    if why:
        raise WrongSetting(
            f"{KEY_FILE}: '{path}' {why}",
            f"let {KEY_FILE} name a key file, or unset it to go by"
            " `gcloud auth application-default login`",
        )
