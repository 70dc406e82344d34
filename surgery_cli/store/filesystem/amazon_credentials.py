"""Credentials for ``s3://`` that are made of others when they are asked for: what is wrong with that, said before."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

from surgery_cli.store.filesystem.amazon_settings import settings_files
from surgery_cli.store.filesystem.wrong_settings import WrongSetting

_ROLES: Final = ("assume-role", "assume-role-with-web-identity")
"""What botocore calls credentials of a role that is taken with others; keys that are there go before them."""
_TOKEN_FILE: Final = "AWS_WEB_IDENTITY_TOKEN_FILE"
_TOKEN_KEY: Final = "web_identity_token_file"


def check_roles(method: str, profile: str, profiles: Mapping[str, Mapping[str, Any]]) -> None:
    """See that a role can be taken without a person, and with files that are there.

    ``method``: what botocore calls where it has the credentials from; ``profile``: the one in force, of ``profiles``.

    Raises:
        WrongSetting: it cannot.
    """
    if method not in _ROLES:
        return
    if method == _ROLES[1] and (path := os.environ.get(_TOKEN_FILE)):
        _check_file(path, _TOKEN_FILE, f"correct {_TOKEN_FILE}")
        return
    for name, found in _chain(profile, profiles):
        if "role_arn" in found and "mfa_serial" in found:
            raise WrongSetting(
                f"the profile '{name}' has `mfa_serial`: a person would be asked for a code",
                f"give the credentials that `aws configure export-credentials --profile {name}` prints,"
                " or a profile without it",
            )
        if path := found.get(_TOKEN_KEY):
            _check_file(path, f"`{_TOKEN_KEY}`", f"correct `{_TOKEN_KEY}` in {settings_files()}")


def _chain(
    name: str | None, profiles: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A profile, and those whose credentials it is taken with."""
    seen: set[str] = set()
    while name is not None and name in profiles and name not in seen:
        seen.add(name)
        yield name, profiles[name]
        name = profiles[name].get("source_profile")


def _check_file(path: str, setting: str, fix: str) -> None:
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise WrongSetting(f"{setting}: '{path}' cannot be read: {error.strerror}", fix) from None
