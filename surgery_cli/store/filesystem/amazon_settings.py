"""What is wrong with the variables and files by which ``s3://`` is set up, as botocore tells before it asks anybody."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from surgery_cli.store.filesystem.endpoints import (
    Endpoint,
    fault_of,
    mended,
    said_by,
    shown,
    with_small_scheme,
)
from surgery_cli.store.filesystem.wrong_settings import WrongSetting
from surgery_cli.words.lists import listed

_FILES: Final = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
}


class _Setting(NamedTuple):
    """The variables that say something, the first that is set before the others, and its key in the files."""

    variables: tuple[str, ...]
    key: str = ""


_PROFILE: Final = _Setting(("AWS_DEFAULT_PROFILE", "AWS_PROFILE"))
_REGION: Final = _Setting(("AWS_DEFAULT_REGION",), "region")
_SETTINGS: Final = {
    "ProfileNotFound": _PROFILE,
    "NoRegionError": _REGION,
    "InvalidRegionError": _REGION,
    "InvalidRetryModeError": _Setting(("AWS_RETRY_MODE",), "retry_mode"),
    "InvalidMaxRetryAttemptsError": _Setting(("AWS_MAX_ATTEMPTS",), "max_attempts"),
}
"""By the name of botocore's error."""
_OF_OTHERS: Final = (
    "ConnectionError",
    "CredentialRetrievalError",
    "HTTPClientError",
    "LoginError",
    "MetadataRetrievalError",
    "NoAuthTokenError",
    "NoCredentialsError",
    "SSOError",
    "TokenRetrievalError",
)
"""What comes of asking somebody for credentials, or of the way there, not of a setting; some are of new releases."""
_OF_FILES: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_ENDPOINT: Final = _Setting(("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "endpoint_url")
_SWITCHES: Final = (
    _Setting(("AWS_USE_FIPS_ENDPOINT",), "use_fips_endpoint"),
    _Setting(("AWS_USE_DUALSTACK_ENDPOINT",), "use_dualstack_endpoint"),
    _Setting(("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",), "ignore_configured_endpoint_urls"),
)
OF_AMAZON: Final = (".amazonaws.com", ".amazonaws.com.cn")
OF_REGION: Final = re.compile(r"https://s3(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?/?")
"""The ordinary address of a region, which TensorStore finds by itself: none with FIPS, both stacks, or in a VPC."""
_CERTIFICATES: Final = _Setting(("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"), "ca_bundle")


@contextmanager
def settings_told() -> Iterator[None]:
    """Tell settings from answers where a client is made: nobody is asked meanwhile, but for credentials.

    Raises:
        WrongSetting: what failed is a setting; what else fails stays what it is.
    """
    from botocore import exceptions

    of_others = tuple(vars(exceptions)[name] for name in _OF_OTHERS if name in vars(exceptions))
    try:
        yield
    except of_others:
        raise
    except _OF_FILES as error:
        if error.filename is None:
            raise
        why = f"'{error.filename}' cannot be read or run: {error.strerror}"
        if isinstance(error, FileNotFoundError):
            why = f"there is no '{error.filename}'"
        names = [name for name, value in _given().items() if value == error.filename]
        process = f"`credential_process` in {settings_files()}"  # a program that gives credentials
        raise WrongSetting(why, f"correct {listed(names, word='or') or process}") from error
    except (exceptions.BotoCoreError, ValueError) as error:
        raise WrongSetting(_why(error), _fix(error)) from error


def check_made(endpoint: str, certificates: str | None) -> None:
    """Refuse what botocore finds out at its first request alone: where that goes, and a file that is not there.

    ``certificates``: what botocore's own setting says of them.
    """
    if not endpoint.lower().startswith(("http://", "https://")):
        raise WrongSetting(
            f"the endpoint '{shown(endpoint)}' is no address of HTTP", _fix_of_endpoint()
        )
    _check_address(endpoint, _place(_ENDPOINT))
    path = certificates or os.environ.get("REQUESTS_CA_BUNDLE")
    if path and not os.path.exists(path):
        raise WrongSetting(
            f"there is no file of certificates '{path}'", f"correct {_place(_CERTIFICATES)}"
        )


def endpoint_at(url: str) -> Endpoint | None:
    """Where the service is, if the user has set that; None for the region's own."""
    given = [os.environ.get(name, "") for name in _ENDPOINT.variables]
    known = url in (with_small_scheme(one) for one in given)  # else it may not be in force
    is_set = known or not (urlsplit(url).hostname or "").endswith(OF_AMAZON)
    return Endpoint(_place(_ENDPOINT), url) if is_set else None


def check_variable() -> None:
    """Refuse an address in a variable of which botocore says no more than that something is no address."""
    told = endpoint_by_variable()
    is_ignored = os.environ.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "").lower() == "true"
    if told is not None and not is_ignored:
        _check_address(told.url, told.place)


def _check_address(url: str, place: str) -> None:
    if fault := fault_of(url):
        meant = "http://127.0.0.1:9000" if fault_of(mended(url)) else mended(url)
        raise WrongSetting(
            f"the endpoint '{shown(url)}' {fault}", f"write {place} as {shown(meant)}"
        )


def endpoint_by_variable() -> Endpoint | None:
    """Where a variable says that the service is, if one does."""
    names = [name for name in _ENDPOINT.variables if os.environ.get(name)]
    return Endpoint(names[0], os.environ[names[0]]) if names else None


def check_switches(profile: Mapping[str, Any]) -> None:
    """Refuse what botocore takes for no without a word: it knows no other yes than `true`.

    ``profile``: what the files say that is in force.

    Raises:
        WrongSetting: a setting that is yes or no is neither.
    """
    for switch in _SWITCHES:
        (name,) = switch.variables
        value = os.environ.get(name) or profile.get(switch.key) or "false"
        if str(value).lower() not in ("true", "false"):
            raise WrongSetting(
                f"'{value}' is neither 'true' nor 'false', as {_place(switch)} must be",
                f"correct {_place(switch)}",
            )


def _fix(error: Exception) -> str:
    """What to set otherwise, as far as botocore's error tells which setting it is about."""
    name, known = type(error).__name__, getattr(error, "kwargs", {})
    if name == "ConfigParseError":
        return _mend(known["path"])
    if name == "PartialCredentialsError":
        return f"give `{known['cred_var']}` as well, or leave both out"
    if name == "InvalidConfigError":
        return f"mend that in {settings_files()}"
    if name in _SETTINGS:
        return f"correct {_place(_SETTINGS[name])}"
    if isinstance(error, ValueError) and "endpoint" in str(error):
        return _fix_of_endpoint()
    names = _named_in(str(error))
    return f"correct {listed(names, word='or')}" if names else f"mend that in {settings_files()}"


_QUOTED: Final = re.compile(r"""'([^']+)'|"([^"]+)\"""")
_NO_NUMBER: Final = re.compile(r"invalid literal for (int|float)\(\).*?: (.*)")


def _why(error: Exception) -> str:
    """What botocore says, or Python where botocore makes a number of a text."""
    said = said_by(error)
    return _NO_NUMBER.sub(r"\2 is no number", said)


def _named_in(said: str) -> list[str]:
    """The variables whose value an error is about: that is said in it, or at least the host that is part of it."""
    quoted = ["".join(pair) for pair in _QUOTED.findall(said)]
    words = [word.strip(".,:;") for word in said.split()]
    given = _given()
    for told in (quoted, words):
        if names := [name for name, value in given.items() if value in told]:
            alike = {name: _likeness(name, said) for name in names}
            return [name for name in names if alike[name] == max(alike.values())]
    return [name for name, value in given.items() if _host_of(value) in quoted]


def _host_of(value: str) -> str | None:
    with suppress(ValueError):  # of brackets
        return urlsplit(value).hostname
    return None


def _likeness(name: str, said: str) -> int:
    """How many words of a variable's name are said: a value may stand there that is not what is wrong."""
    words = set(said.lower().split())
    return sum(word in words for word in name.lower().split("_"))


def _given() -> dict[str, str]:
    """The variables of Amazon's tools that are set."""
    found = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
    return {name: value for name, value in sorted(found.items()) if value}


def _fix_of_endpoint() -> str:
    return f"give {_place(_ENDPOINT)} with http:// or https:// in front"


def _place(setting: _Setting) -> str:
    """Where the setting that is in force stands."""
    for name in setting.variables:
        if os.environ.get(name):
            return name
    return (
        f"`{setting.key}` in {settings_files()}"
        if setting.key
        else listed(setting.variables, word="or")
    )


def _mend(path: Any) -> str:
    """A file that botocore cannot read, and the variable that names it."""
    by = next((f", which {name} names" for name in _FILES if os.environ.get(name) == path), "")
    return f"mend '{path}'{by}"


def settings_files() -> str:
    """The files in which settings stand, that are there."""
    named = [os.environ.get(name) or default for name, default in _FILES.items()]
    there = [name for name in named if Path(name).expanduser().is_file()]
    return listed(there or named, word="or", mark="'")
