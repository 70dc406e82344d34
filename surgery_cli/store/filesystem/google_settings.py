"""The variables by which ``gs://`` is found and asked: two libraries go by them, each by its own."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from surgery_cli.store.filesystem.endpoints import (
    PORTS,
    Endpoint,
    fault_of,
    mended,
    shown,
    split,
    with_small_scheme,
)
from surgery_cli.store.filesystem.wrong_settings import WrongSetting

KEY_FILE: Final = "GOOGLE_APPLICATION_CREDENTIALS"
_TESTING: Final = "GOOGLE_AUTH_TOKEN_FOR_TESTING"
"""What TensorStore sends in the place of any credentials; gcsfs needs none for an emulator."""
_OF_GOOGLE: Final = "googleapis.com"
"""Google's own service, also by the ways to it from inside of a network, of a region, or of the user's own."""
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1", "0.0.0.0")  # noqa: S104 - compared alone
"""Names of this machine: emulators tell any of them."""
_HOSTS: Final = {"STORAGE_EMULATOR_HOST": "gcsfs", "TENSORSTORE_GCS_HTTP_URL": "TensorStore"}
"""Which variable says to whom where the service is."""
_AS_UNSET: Final = ("", "default", "empty")
"""What gcsfs takes for no emulator at all."""


def check_settings() -> None:
    """See that both libraries go to the same service, and find there who asks, before they are set to work.

    Raises:
        WrongSetting: one of them alone would go to an emulator, and the other to Google's own service, or to another
            emulator; an address is none to which they can add something; or the file of credentials that was named
            cannot be one.
    """
    where = {name: os.environ.get(name, "") for name in _HOSTS}
    for name, url in where.items():
        if url not in _AS_UNSET:
            _check_address(name, url)
    elsewhere = {name: url for name, url in where.items() if _is_elsewhere(url)}
    if len(elsewhere) == 1:
        ((given, url),) = elsewhere.items()
        (lacking,) = _HOSTS.keys() - elsewhere.keys()
        is_set = where[lacking] not in _AS_UNSET
        raise WrongSetting(
            f"{given}={shown(url)} sends {_HOSTS[given]} to an emulator, and "
            + (
                f"{lacking}={shown(where[lacking])} is Google"
                if is_set
                else f"{lacking} is not set"
            )
            + f": {_HOSTS[lacking]} would ask Google",
            f"set {lacking} to the same address, or unset {given}",
        )
    if len(set(map(_address, elsewhere.values()))) > 1:
        told = " and ".join(
            f"{name}={shown(url)} for {_HOSTS[name]}" for name, url in elsewhere.items()
        )
        raise WrongSetting(
            f"{told} are two addresses: one would not see what the other writes",
            f"set {' and '.join(elsewhere)} to the same address",
        )
    if not (elsewhere and os.environ.get(_TESTING)):  # then nobody reads it
        _check_key_file()


def spell_schemes() -> None:
    """Let gcsfs, too, find an address that begins with HTTP://."""
    for name in _HOSTS:
        if name in os.environ:
            os.environ[name] = with_small_scheme(os.environ[name])


def service_of_tensorstore() -> str:
    """Where TensorStore finds the service: the emulator, or one of Google's addresses."""
    url = os.environ.get("TENSORSTORE_GCS_HTTP_URL", "")
    return f"https://storage.{_OF_GOOGLE}" if url in _AS_UNSET else url


def endpoint_in_force() -> Endpoint | None:
    """The emulator that both libraries are sent to, if it is one."""
    urls = {os.environ.get(name, "") for name in _HOSTS}
    if not all(map(_is_elsewhere, urls)):
        return None
    return Endpoint(" and ".join(_HOSTS), min(urls, key=len))


def _check_address(name: str, url: str) -> None:
    """Both libraries put what they ask for behind the address as it is written: an emulator knows no `//storage`."""
    fault = fault_of(url) or ("ends in a slash" if url.endswith("/") else "")
    if not fault:
        return
    meant = mended(url)
    fix = f"write {name}={shown(meant)}"
    if fault_of(meant):
        fix = f"let {name} be as http://127.0.0.1:4443, or unset it"
    raise WrongSetting(f"{name} is '{shown(url)}', which {fault}", fix)


def _is_elsewhere(url: str) -> bool:
    host = split(url).hostname or ""
    return url not in _AS_UNSET and not f".{host}".endswith(f".{_OF_GOOGLE}")


def _address(url: str) -> tuple[str, str, int, str]:
    """What is the same of two addresses that lead to one service."""
    parts = split(url)
    host = parts.hostname or ""
    host = _LOOPBACK[0] if host in _LOOPBACK else host
    return parts.scheme, host, parts.port or PORTS[parts.scheme], parts.path


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
