"""Google Cloud Storage (``gs://``), by gcsfs; TensorStore reads arrays there by a driver of its own."""

from __future__ import annotations

import base64
import errno
import hashlib
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from surgery_cli.inputs.buckets import StoredOtherwise
from surgery_cli.store.filesystem.deferred_imports import deferred
from surgery_cli.store.filesystem.endpoints import Endpoint
from surgery_cli.store.filesystem.fsspec_service import FsspecService
from surgery_cli.store.filesystem.google_settings import (
    check_settings,
    endpoint_in_force,
    service_of_tensorstore,
    spell_schemes,
)
from surgery_cli.store.filesystem.object_service import (
    Page,
    ServiceWords,
    StoredObject,
    limit_silence,
)
from surgery_cli.store.filesystem.proxies import check_way, proxy_of_curl
from surgery_cli.store.filesystem.quiet_start import start_quietly

_FIELDS: Final = "name,size,updated,generation,md5Hash,crc32c"
_PER_PAGE: Final = 1000
_STEPS_WITHOUT_PROGRESS: Final = 10
SILENCE_SECONDS: Final = 45
"""Of an answer; gcsfs asks six times, with pauses of half a minute in all."""
_ZONAL: Final = "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"
"""gcsfs's own variable: ``true`` is for code of the user's that reads zonal buckets by it in this process."""
_importing: Final = threading.Lock()
_UNASKED: Final = (
    "google.cloud.storage.asyncio.async_appendable_object_writer",
    "google.cloud.storage.asyncio.async_multi_range_downloader",
    "google_auth_oauthlib.flow",
    "google.api_core.exceptions",
    "google.api_core.retry",
    "google.auth.crypt.es",
    "google.auth.crypt.es256",
    "google.auth.crypt.rsa",
)


class GoogleStorage(FsspecService):
    """See ``ObjectService``; by gcsfs."""

    words = ServiceWords(
        scheme="gs",
        extra="gcs",
        name="Google Cloud Storage",
        credentials="give credentials: `gcloud auth application-default login`, or a key file in"
        " GOOGLE_APPLICATION_CREDENTIALS",
        region="see STORAGE_EMULATOR_HOST, if it is set",
    )
    needs_commit_mark = True
    versions_are_unique = True
    ends_uploads = False

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        asked = {
            "prefix": prefix or None,
            "delimiter": delimiter or None,
            "pageToken": token,
            "maxResults": _PER_PAGE,
            "fields": f"items({_FIELDS}),prefixes,nextPageToken",
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        with self._asking(bucket):
            got = self._client.call("GET", "b/{}/o", bucket, json_out=True, **asked)
        objects = [_object(one) for one in got.get("items", ())]
        return Page(objects, got.get("prefixes", []), got.get("nextPageToken"))

    def look_up(self, bucket: str, key: str) -> StoredObject:
        return _object(self._described(bucket, key))

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        with self._asking(bucket, found.key, is_of_version=True):
            url = self._client.url(f"{bucket}/{found.key}")
            asked = {"Range": f"bytes={start}-{stop - 1}"}
            same = {"ifGenerationMatch": found.version}
            content: bytes = self._client.call("GET", url, headers=asked, **same)[1]
        return content

    def put(self, bucket: str, key: str, content: bytes, *, exclusively: bool) -> str:
        with self._asking(bucket, key):
            condition = {"ifGenerationMatch": "0"} if exclusively else {}
            made = self._upload(bucket, key, content, condition)
        return _version_of(made, content, f"gs://{bucket}/{key}")

    def put_in_place(self, bucket: str, key: str, content: bytes, found: StoredObject) -> str:
        with self._asking(bucket, key, is_of_version=True):
            made = self._upload(bucket, key, content, {"ifGenerationMatch": found.version})
        return _version_of(made, content, f"gs://{bucket}/{key}")

    def _upload(self, bucket: str, key: str, content: bytes, condition: dict[str, str]) -> Any:
        from surgery_cli.store.filesystem.sliced_body import SlicedBody  # by gcsfs only

        # gcsfs's own way wraps small objects in a message, in which a byte 0x0d at their end looks like a part of it
        asked = {"uploadType": "media", "name": key, **condition}
        kind = {"Content-Type": "application/octet-stream"}
        place = self._client.base.replace("/storage/", "/upload/storage/", 1)
        body = SlicedBody(content)
        return self._client.call(
            "POST", f"{place}b/{bucket}/o", headers=kind, data=body, json_out=True, **asked
        )

    def stream(self, bucket: str, key: str, *, exclusively: bool) -> Any:
        stream = super().stream(bucket, key, exclusively=exclusively)
        return _Upload(stream, lambda: self._described(bucket, key))

    def _described(self, bucket: str, key: str) -> dict[str, Any]:
        with self._asking(bucket, key):
            got: dict[str, Any] = self._client.call(
                "GET", "b/{}/o/{}", bucket, key, json_out=True, fields=_FIELDS
            )
        return got

    def copy(
        self,
        bucket: str,
        found: StoredObject,
        to_bucket: str,
        to_key: str,
        replacing: str | None = None,
    ) -> str:
        asked = {"ifSourceGenerationMatch": found.version}
        if replacing is not None:
            asked["ifGenerationMatch"] = replacing or "0"
        with self._asking(bucket, found.key, is_of_version=True):
            done, idle, copied = False, 0, 0
            while not done:  # what is large is copied in several steps
                got = self._client.call(
                    "POST",
                    "b/{}/o/{}/rewriteTo/b/{}/o/{}",
                    bucket,
                    found.key,
                    to_bucket,
                    to_key,
                    headers={"Content-Type": "application/json"},
                    json_out=True,
                    **asked,
                )
                done = got["done"]
                asked["rewriteToken"] = got.get("rewriteToken")
                so_far = int(got.get("totalBytesRewritten", 0))
                idle, copied = idle + 1 if so_far <= copied else 0, so_far
                if not done and idle == _STEPS_WITHOUT_PROGRESS:
                    raise OSError(errno.EIO, "it goes on copying, and no more is copied")
        version: str = got["resource"]["generation"]
        return version

    def delete(self, bucket: str, key: str, found: StoredObject | None = None) -> None:
        asked = {} if found is None else {"ifGenerationMatch": found.version}
        with self._asking(bucket, key, is_of_version=True):
            self._client.call("DELETE", "b/{}/o/{}", bucket, key, **asked)

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        limit_silence()
        spec = {"driver": "gcs", "bucket": bucket, "path": folder}
        start_quietly(spec)
        return spec

    def _endpoint(self) -> Endpoint | None:
        return endpoint_in_force()

    def _import(self) -> None:
        _client_class()

    def _connected(self) -> Any:
        check_settings()
        spell_schemes()
        endpoint = self._endpoint()
        if endpoint is not None and not _has_own_session():
            check_way("gcsfs", endpoint.url, lambda _url: None, endpoint)
        check_way("TensorStore", service_of_tensorstore(), proxy_of_curl, endpoint)
        # what it would log, it also raises
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        return _client_class()(skip_instance_cache=True, **_patience())


def _patience() -> dict[str, Any]:
    """How long gcsfs waits for an answer once it has asked: by itself for ever. What the user's settings say stands."""
    from aiohttp import ClientTimeout

    if "requests_timeout" in _configured():
        return {}
    return {"requests_timeout": ClientTimeout(total=None, sock_read=SILENCE_SECONDS)}


def _has_own_session() -> bool:
    """Whether the user's settings of fsspec say how gcsfs connects, by proxies for one; else it goes through none."""
    return bool(_configured().get("session_kwargs"))


def _configured() -> dict[str, Any]:
    """What the user's settings of fsspec say of gcsfs."""
    from fsspec.config import apply_config

    found: dict[str, Any] = apply_config(_client_class(), {})
    return found


class _Upload:
    """gcsfs's upload of a large object, piece by piece.

    Where the answer to the last piece is lost, gcsfs sends that again, and may hear that something stands there by now:
    it is what was sent if it has its size and its digest.
    """

    def __init__(self, stream: Any, described: Callable[[], dict[str, Any]]) -> None:
        self._stream = stream
        self._described = described
        self._size = 0
        self._name, self._digest = _running_digest()

    def write(self, piece: bytes) -> None:
        self._size += len(piece)
        self._digest.update(piece)
        self._stream.write(piece)

    def discard(self) -> None:
        self._stream.discard()

    def close(self) -> str | None:
        try:
            self._stream.close()
        except FileExistsError:
            found = self._described()
            sent = base64.b64encode(self._digest.digest()).decode()
            if (int(found["size"]), found[self._name]) != (self._size, sent):
                raise
            return str(found["generation"])
        generation: str | None = (
            self._stream.generation
        )  # gcsfs forgets it where nothing was left to send
        return generation


def _client_class() -> Any:
    """gcsfs's client. What it imports for zonal buckets, browsers and key files is two fifths of its start."""
    with _importing:
        asked = os.environ.get(_ZONAL, "false")
        if "gcsfs" not in sys.modules and asked.lower() not in ("true", "1"):
            is_said = _ZONAL in os.environ
            os.environ.setdefault(_ZONAL, "false")
            try:
                with suppress(Exception), deferred(*_UNASKED):
                    import gcsfs.core
            finally:
                if not is_said:
                    del os.environ[_ZONAL]
    import gcsfs.core

    return gcsfs.core.GCSFileSystem


def _running_digest() -> tuple[str, Any]:
    """The name in an object's description of a digest, and what makes it: CRC32C, or MD5 where Python makes that."""
    import google_crc32c

    if google_crc32c.implementation == "python":  # a thousandth as fast
        return "md5Hash", hashlib.md5(usedforsecurity=False)
    return "crc32c", google_crc32c.Checksum()


def _version_of(made: dict[str, Any], content: bytes, address: str) -> str:
    """Raises StoredOtherwise: an object that was made is not what was sent."""
    name, digest = _running_digest()
    digest.update(content)
    version: str = made["generation"]
    if made[name] != base64.b64encode(digest.digest()).decode():
        raise StoredOtherwise(address, version)
    return version


def _object(found: dict[str, Any]) -> StoredObject:
    changed = datetime.fromisoformat(found["updated"])
    nanoseconds = int(changed.timestamp() * 1_000_000) * 1000
    digest = found.get("md5Hash") or found.get("crc32c", "")  # what was put together has no MD5
    return StoredObject(found["name"], int(found["size"]), nanoseconds, found["generation"], digest)
