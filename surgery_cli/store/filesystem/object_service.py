"""What a service that keeps objects in buckets must be able to do, so that its buckets can be read like a disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol

import msgspec

from surgery_cli.inputs.buckets import NoBucket, Replaced, ServiceRefusal
from surgery_cli.store.filesystem.endpoints import Endpoint, check_is_plain, said_by
from surgery_cli.store.filesystem.wrong_settings import WrongSetting

STREAMED_BYTES: Final = 8 << 20
"""What is larger is written piece by piece."""

_SILENCE: Final = {
    "TENSORSTORE_CURL_LOW_SPEED_LIMIT_BYTES": "1",
    "TENSORSTORE_CURL_LOW_SPEED_TIME_SECONDS": "30",
}
"""After half a minute without a byte a request of TensorStore's has failed, and is made again; by itself it waits."""


def limit_silence() -> None:
    """Let TensorStore not wait forever for a service that takes requests and never answers; the user's own limits hold.

    It looks at these once, before its first request.
    """
    for name, value in _SILENCE.items():
        os.environ.setdefault(name, value)


class StoredObject(msgspec.Struct, frozen=True, gc=False):
    """What a listing tells of an object; ``version`` is another one for what is put in its place.

    ``digest``: of what it holds, as its copies have it; that of ``md5_of`` if one request made it; '' if untold.
    """

    key: str
    size: int
    mtime_ns: int
    version: str
    digest: str = ""


class Page(msgspec.Struct, frozen=True):
    """A part of a listing, in order: objects, what the names of others begin with, and how to ask for the next."""

    objects: list[StoredObject]
    prefixes: list[str]
    next_page: str | None


class ObjectService(Protocol):
    """A service; keys have no slash in front. Tries again by itself what may go better then.

    Every method raises FileNotFoundError for what is not there, and ServiceRefusal where the service says no, cannot
    be reached, or would need a package or credentials that are not there.
    """

    @property
    def scheme(self) -> str:
        """What addresses begin with, before ``://``."""

    @property
    def versions_are_unique(self) -> bool:
        """True if no two objects of a name have the same version; else those have that hold the same."""

    @property
    def needs_commit_mark(self) -> bool:
        """True where Orbax takes a save for finished only once its ``commit_success.txt`` is there."""

    @property
    def ends_uploads(self) -> bool:
        """True where what is made in several requests is there once one more says so; else with the last of them."""

    def parts_of(self, size: int) -> int:
        """In how many parts it puts or copies an object of so many bytes; one, where a single request does.

        Else one more request begins that, and one ends it.
        """

    def load(self) -> None:
        """Import what speaks with the service, if it is there."""

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        """One request of a listing: with ``delimiter`` '/' of one folder, with '' of everything below ``prefix``."""

    def look_up(self, bucket: str, key: str) -> StoredObject:
        """What is known of one object, in one request."""

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        """Bytes of an object as it was when it was found; ``Replaced`` if another one is in its place."""

    def put(self, bucket: str, key: str, content: bytes, *, exclusively: bool) -> str:
        """Make an object, and give its version; ``exclusively``: FileExistsError where one stands, also if it is from
        a lost answer. What came was held against a digest: CRC32C on Google's service, MD5 on Amazon's.
        """

    def put_in_place(self, bucket: str, key: str, content: bytes, found: StoredObject) -> str:
        """Put another object in the place of one as it was when it was found; ``Replaced`` if that is gone by now.

        Gives its version.
        """

    def stream(self, bucket: str, key: str, *, exclusively: bool) -> Any:
        """As ``put``, of a file that is written piece by piece, and is there once it is closed: that gives its version,
        or None, where the service does not tell.
        """

    def copy(
        self,
        bucket: str,
        found: StoredObject,
        to_bucket: str,
        to_key: str,
        replacing: str | None = None,
    ) -> str:
        """Copy an object as it was when it was found, without its bytes passing through this machine; ``Replaced`` if
        another one is in its place. Gives the version of the copy, which comes in the place of the version
        ``replacing``, of nothing ('', else ``Replaced``), or of whatever stands there (None).
        """

    def delete(self, bucket: str, key: str, found: StoredObject | None = None) -> None:
        """Delete an object; with ``found``: ``Replaced`` if it is another one by now."""

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        """How TensorStore is told of a folder (with a slash at the end, or '')."""


class ServiceWords(msgspec.Struct, frozen=True):
    """How a service is spoken of: its name, our extra for it, what to do where it does not know who asks, or where it
    is asked at the wrong place.
    """

    scheme: str
    extra: str
    name: str
    credentials: str
    region: str


@contextmanager
def asking(
    words: ServiceWords,
    bucket: str,
    key: str | None = None,
    *,
    is_of_version: bool = False,
    is_anybody: Callable[[], bool] = lambda: False,
    endpoint: Callable[[], Endpoint | None] = lambda: None,
) -> Iterator[None]:
    """What a service and the libraries that speak with it say, as one of the errors of ``ObjectService``.

    Without ``key``, the bucket itself is asked for; ``is_anybody``: whether that is done without credentials;
    ``endpoint``: where the user has said that the service is.
    FileExistsError is a condition that does not hold: with ``is_of_version`` that the object is still the one that was
    found, else that there is none.
    """
    address = f"{words.scheme}://{bucket}" + (f"/{key}" if key else "")
    try:
        yield
    except WrongSetting as error:
        raise _of_setting(error, address) from error
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        raise ServiceRefusal(
            f"`{words.scheme}://` needs the package {package}",
            address,
            f"`pip install 'surgery-cli[{words.extra}]'`",
        ) from None
    except FileExistsError:
        if is_of_version:
            raise Replaced(address) from None
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), address) from None
    except FileNotFoundError:
        if key is not None:
            raise
        there = endpoint()
        raise NoBucket(
            f"there is no bucket '{bucket}', or it is not to be seen with these credentials"
            + (f" ({there.told})" if there else ""),
            address,
            f"check its name{f' and {there.place}' if there else ''}; {words.credentials}",
        ) from None
    except Exception as error:  # whatever of their libraries gcsfs and s3fs let through
        raise _refusal(words, error, address, endpoint(), is_anybody=is_anybody()) from error


@contextmanager
def unless_refused() -> Iterator[None]:
    """Pass over a list that is refused: who may read may not always list. Who gets no answer asks for no more."""
    try:
        yield
    except ServiceRefusal as error:
        if not error.is_answered:
            raise


_OF_CREDENTIALS: Final = (
    "google.auth.",
    "botocore.exceptions.CredentialRetrieval",
    "botocore.exceptions.Login",
    "botocore.exceptions.NoCredentials",
    "botocore.exceptions.TokenRetrieval",
    "botocore.exceptions.SSO",
    "botocore.exceptions.UnauthorizedSSO",
)
UNKNOWN: Final = ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken")
EXPIRED: Final = ("ExpiredToken", "RequestExpired", "TokenRefreshRequired")
ELSEWHERE: Final = ("301", "PermanentRedirect", "AuthorizationHeaderMalformed")


def code_of(error: Exception) -> str:
    """What the service calls the error, if it comes from there."""
    said = getattr(error.__cause__, "response", None) or {}
    return str(said.get("Error", {}).get("Code", "") or getattr(error, "code", ""))


def _of_setting(error: WrongSetting, address: str) -> ServiceRefusal:
    why = f"a setting is wrong: {error.why}"
    return ServiceRefusal(why, address, error.fix, is_answered=True)


def _refusal(
    words: ServiceWords,
    error: Exception,
    address: str,
    endpoint: Endpoint | None,
    *,
    is_anybody: bool,
) -> ServiceRefusal:
    """What the service or the way to it said, in a line."""
    said = said_by(error) or type(error).__name__
    kind, code = f"{type(error).__module__}.{type(error).__name__}", code_of(error)
    if code in EXPIRED:
        why = f"the credentials have expired: {said}"
        return ServiceRefusal(
            why, address, f"ask for new ones: {words.credentials}", is_answered=True
        )
    if code in UNKNOWN:
        why = f"{words.name} does not know these credentials: {said}"
        return ServiceRefusal(why, address, words.credentials, is_answered=True)
    is_refused = isinstance(error, PermissionError) or said.startswith("Forbidden")
    if kind.startswith(_OF_CREDENTIALS) or code == "401" or (is_refused and is_anybody):
        why = f"no credentials for it: {said}"
        return ServiceRefusal(why, address, words.credentials, is_answered=True)
    if code in ELSEWHERE:
        why = f"the bucket is in another region, or at another endpoint: {said}"
        return ServiceRefusal(why, address, words.region, is_answered=True)
    if is_refused:
        fix = f"ask for the permission to read, list or write there, or {words.credentials}"
        why = f"{words.name} does not permit it: {said}"
        return ServiceRefusal(why, address, fix, is_answered=True)
    if endpoint is not None and code in ("", "400"):  # other answers are of plain HTTP
        try:
            check_is_plain(endpoint)
        except WrongSetting as wrong:
            return _of_setting(wrong, address)
    fix = "run the command again later; nothing of it was taken for an answer"
    where = ""
    if endpoint is not None:
        fix = f"{fix}; or {endpoint.fix}"
        where = f" ({endpoint.told})"
    return ServiceRefusal(
        f"{words.name}{where} cannot be reached, or fails, after several tries: {said}",
        address,
        fix,
    )
