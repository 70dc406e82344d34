"""Google Cloud Storage (``gs://``), by gcsfs; TensorStore reads arrays there by a driver of its own."""

from __future__ import annotations

import logging
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from surgery_cli.inputs.buckets import ServiceRefusal
from surgery_cli.store.filesystem.object_service import Page, StoredObject

_FIELDS: Final = "name,size,updated,generation"
_PER_PAGE: Final = 1000

_CREDENTIALS: Final = (
    "give credentials: `gcloud auth application-default login`, or a key file in"
    " GOOGLE_APPLICATION_CREDENTIALS"
)


class GoogleStorage:
    """See ``ObjectService``. gcsfs finds credentials as Google's own tools do, and tries again with growing pauses."""

    scheme = "gs"
    needs_commit_mark = True

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        asked = {
            "prefix": prefix or None,
            "delimiter": delimiter or None,
            "pageToken": token,
            "maxResults": _PER_PAGE,
            "fields": f"items({_FIELDS}),prefixes,nextPageToken",
        }
        asked = {name: value for name, value in asked.items() if value is not None}
        try:
            got = self._call(bucket, prefix, "GET", "b/{}/o", bucket, json_out=True, **asked)
        except FileNotFoundError:
            raise ServiceRefusal(
                f"there is no bucket '{bucket}', or it is not to be seen with these credentials",
                f"gs://{bucket}",
                f"check its name; {_CREDENTIALS}",
            ) from None
        objects = [_object(one) for one in got.get("items", ())]
        return Page(objects, got.get("prefixes", []), got.get("nextPageToken"))

    def look_up(self, bucket: str, key: str) -> StoredObject:
        parts = (bucket, key)
        return _object(
            self._call(bucket, key, "GET", "b/{}/o/{}", *parts, json_out=True, fields=_FIELDS)
        )

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        url = self._client.url(f"{bucket}/{found.key}", generation=found.version)
        asked = {"Range": f"bytes={start}-{stop - 1}"}
        content: bytes = self._call(bucket, found.key, "GET", url, headers=asked)[1]
        return content

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        return {"driver": "gcs", "bucket": bucket, "path": folder}

    @cached_property
    def _client(self) -> Any:
        # what it would log, it also raises
        logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem(skip_instance_cache=True)

    def _call(self, bucket: str, key: str, *asked: Any, **details: Any) -> Any:
        """Ask the service, in gcsfs's own words."""
        address = f"{self.scheme}://{bucket}/{key}"
        try:
            return self._client.call(*asked, **details)
        except ModuleNotFoundError as error:
            package = str(error.name).partition(".")[0]
            raise ServiceRefusal(
                f"`gs://` needs the package {package}",
                address,
                "`pip install 'surgery-cli[gcs]'`",
            ) from None
        except FileNotFoundError:
            raise
        except Exception as error:  # whatever of its libraries gcsfs lets through
            raise _refusal(error, address) from error


def _refusal(error: Exception, address: str) -> ServiceRefusal:
    """What the service or the way to it said, in a line."""
    said = " ".join(str(error).split())[:300] or type(error).__name__
    kind = f"{type(error).__module__}.{type(error).__name__}"
    if kind.startswith("google.auth") or getattr(error, "code", None) in (401, "401"):
        return ServiceRefusal(f"no credentials for it: {said}", address, _CREDENTIALS)
    if said.startswith("Forbidden"):
        fix = f"ask for the permission that is named, or {_CREDENTIALS}"
        return ServiceRefusal(f"Google Cloud Storage does not permit it: {said}", address, fix)
    return ServiceRefusal(
        f"Google Cloud Storage cannot be reached, or fails, after several tries: {said}",
        address,
        "run the command again later; nothing of it was taken for an answer",
    )


def _object(found: dict[str, Any]) -> StoredObject:
    changed = datetime.fromisoformat(found["updated"])
    nanoseconds = int(changed.timestamp() * 1_000_000) * 1000
    return StoredObject(found["name"], int(found["size"]), nanoseconds, found["generation"])
