"""What speaks Amazon's S3 (``s3://``), by s3fs; TensorStore reads arrays there by a driver of its own."""

from __future__ import annotations

import base64
import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from surgery_cli.store.filesystem.amazon_credentials import check_roles
from surgery_cli.store.filesystem.amazon_settings import (
    OF_REGION,
    check_made,
    check_switches,
    check_variable,
    endpoint_at,
    settings_told,
)
from surgery_cli.store.filesystem.endpoints import Endpoint, with_small_scheme
from surgery_cli.store.filesystem.fsspec_service import FsspecService, md5_of
from surgery_cli.store.filesystem.object_service import (
    Page,
    ServiceWords,
    StoredObject,
    code_of,
    limit_silence,
)
from surgery_cli.store.filesystem.proxies import check_way, proxy_of_curl, proxy_of_python
from surgery_cli.store.filesystem.s3_uploads import (
    Upload,
    conditions_told,
    made_in_parts,
    part_bytes,
    quoted,
)

_PER_PAGE: Final = 1000
_TRIES: Final = 5
_BY_NAME: Final = {"iam-role": "imds", "container-role": "ecs"}
"""What botocore and TensorStore call sources of credentials that last for hours, and are asked for new ones then."""

_WITHOUT_WORDS: Final = ("400", "401", "403")
"""Answers to HEAD have no text: what else is asked says why."""


class AmazonS3(FsspecService):
    """See ``ObjectService``; by s3fs.

    Orbax neither saves nor restores there, so that nothing but a save's name says whether it is finished.
    """

    words = ServiceWords(
        scheme="s3",
        extra="s3",
        name="S3",
        credentials="give credentials: `aws configure`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        region="set AWS_DEFAULT_REGION, and AWS_ENDPOINT_URL where it is no service of Amazon's",
    )
    _told: Endpoint | None = None
    needs_commit_mark = False
    versions_are_unique = False
    ends_uploads = True
    largest = 5_000_000_000
    """What one request makes or copies at most, in bytes (the service takes 5 GiB); what is larger comes in parts."""
    part = 512 << 20

    def parts_of(self, size: int) -> int:
        return 1 if size <= self.largest else -(-size // part_bytes(size, self.part))

    def page(self, bucket: str, prefix: str, delimiter: str, token: str | None) -> Page:
        asked = {"Prefix": prefix, "Delimiter": delimiter, "ContinuationToken": token}
        asked = {name: value for name, value in asked.items() if value}
        with self._asking(bucket):
            got = self._call("list_objects_v2", Bucket=bucket, MaxKeys=_PER_PAGE, **asked)
        objects = [_object(one["Key"], one["Size"], one) for one in got.get("Contents", ())]
        prefixes = [one["Prefix"] for one in got.get("CommonPrefixes", ())]
        return Page(objects, prefixes, got.get("NextContinuationToken"))

    def look_up(self, bucket: str, key: str) -> StoredObject:
        with self._asking(bucket, key):
            try:
                got = self._call("head_object", Bucket=bucket, Key=key)
            except OSError as error:
                if code_of(error) in _WITHOUT_WORDS:
                    self._call("list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1)
                raise
        return _object(key, got["ContentLength"], got)

    def read(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        with self._asking(bucket, found.key, is_of_version=True):
            for number in range(_TRIES):
                content = self._range(bucket, found, start, stop)
                if len(content) == min(stop, found.size) - start:
                    return content
                time.sleep(0.1 * 2**number)
            raise OSError(errno.EIO, "its answers end before they are whole")

    def _range(self, bucket: str, found: StoredObject, start: int, stop: int) -> bytes:
        """As much of a range as came before the answer was cut off."""
        from fsspec.asyn import sync
        from s3fs.core import S3_RETRYABLE_ERRORS

        asked = {"Range": f"bytes={start}-{stop - 1}", "IfMatch": found.version}
        got = self._call("get_object", Bucket=bucket, Key=found.key, **asked)
        try:
            content: bytes = sync(self._client.loop, got["Body"].read)
        except S3_RETRYABLE_ERRORS:
            got["Body"].close()  # else its connection is said to be forgotten
            return b""
        return content

    def put(self, bucket: str, key: str, content: bytes, *, exclusively: bool) -> str:
        condition = {"IfNoneMatch": "*"} if exclusively else {}
        with self._asking(bucket, key):
            if self.parts_of(len(content)) > 1:
                view = memoryview(content)
                return self._in_parts(
                    bucket,
                    key,
                    len(content),
                    lambda start, stop: self._sent(bytes(view[start:stop])),
                    condition,
                )
            # what differs from the digest, the service refuses
            asked = {"Bucket": bucket, "Key": key, "Body": content, "ContentMD5": md5_of(content)}
            got = self._call("put_object", **asked, **condition)
        return quoted(got)

    @staticmethod
    def _sent(content: bytes) -> tuple[str, dict[str, Any]]:
        return "upload_part", {"Body": content, "ContentMD5": md5_of(content)}

    def _in_parts(
        self,
        bucket: str,
        key: str,
        size: int,
        part: Callable[[int, int], tuple[str, dict[str, Any]]],
        condition: dict[str, Any],
    ) -> str:
        place = {"Bucket": bucket, "Key": key}
        step = part_bytes(size, self.part)
        return made_in_parts(self._call, place, size, step, part, condition)

    def stream(self, bucket: str, key: str, *, exclusively: bool) -> Any:
        stream = super().stream(bucket, key, exclusively=exclusively)
        return Upload(stream, lambda: self.look_up(bucket, key).version)

    def put_in_place(self, bucket: str, key: str, content: bytes, found: StoredObject) -> str:
        with self._asking(bucket, key, is_of_version=True):
            asked = {"Bucket": bucket, "Key": key, "Body": content}
            return quoted(self._call("put_object", **asked, IfMatch=found.version))

    def copy(
        self,
        bucket: str,
        found: StoredObject,
        to_bucket: str,
        to_key: str,
        replacing: str | None = None,
    ) -> str:
        # services that speak S3 and do not know these conditions of a copy let them be
        condition = {"IfMatch": replacing} if replacing else {"IfNoneMatch": "*"}
        condition = {} if replacing is None else condition
        source = {"Bucket": bucket, "Key": found.key}
        asked = {"CopySource": source, "CopySourceIfMatch": found.version}
        with self._asking(bucket, found.key, is_of_version=True):
            if self.parts_of(found.size) == 1:
                got = self._call("copy_object", Bucket=to_bucket, Key=to_key, **asked, **condition)
                return quoted(got["CopyObjectResult"])
            return self._in_parts(
                to_bucket,
                to_key,
                found.size,
                lambda start, stop: (
                    "upload_part_copy",
                    {**asked, "CopySourceRange": f"bytes={start}-{stop - 1}"},
                ),
                condition,
            )

    def delete(self, bucket: str, key: str, found: StoredObject | None = None) -> None:
        asked = {} if found is None else {"IfMatch": found.version}
        with self._asking(bucket, key, is_of_version=True):
            self._call("delete_object", Bucket=bucket, Key=key, **asked)

    def kvstore(self, bucket: str, folder: str) -> dict[str, Any]:
        limit_silence()
        with self._asking(bucket):
            return {"driver": "s3", "bucket": bucket, "path": folder, **self._connection}

    @property
    def _connection(self) -> dict[str, Any]:
        """Where TensorStore finds the service, and who it is there: what s3fs has found, which looks further."""
        from fsspec.asyn import sync

        meta = sync(self._client.loop, self._client.set_session).meta
        spec: dict[str, Any] = {"aws_credentials": {"type": self._source_of_credentials()}}
        endpoint = with_small_scheme(meta.endpoint_url)
        if not OF_REGION.fullmatch(endpoint):
            spec |= {"endpoint": endpoint, "aws_region": meta.region_name or "us-east-1"}
        return spec  # of a bucket of Amazon's, TensorStore asks for the region

    def _source_of_credentials(self) -> str:
        """Where TensorStore is to take the same credentials from.

        Its own search finds fewer than s3fs does (no profile in the usual file unless AWS_PROFILE names it, no single
        sign-on), says on standard error what it did not find, and goes on as nobody. What has a name of its own there
        and is refreshed is told by that; the rest is handed over in this process's environment.
        """
        from fsspec.asyn import sync

        async def found() -> tuple[str, Any]:
            held = await self._client.session.get_credentials()
            return held.method, await held.get_frozen_credentials()

        if self._client.anon:
            return "anonymous"
        method, keys = sync(self._client.loop, found)
        if method in _BY_NAME:
            return _BY_NAME[method]
        if method != "env":
            os.environ["AWS_ACCESS_KEY_ID"] = keys.access_key
            os.environ["AWS_SECRET_ACCESS_KEY"] = keys.secret_key
            if keys.token:
                os.environ["AWS_SESSION_TOKEN"] = keys.token
        return "environment"

    def _call(self, method: str, **asked: Any) -> dict[str, Any]:
        """A request; FileExistsError where its condition does not hold."""
        with conditions_told():
            got: dict[str, Any] = self._client.call_s3(method, **asked)
        return got

    def _endpoint(self) -> Endpoint | None:
        return self._told

    def _is_anybody(self) -> bool:
        return "_client" in vars(self) and bool(self._client.anon)

    def _import(self) -> None:
        import s3fs  # noqa: F401

    def _connected(self) -> Any:
        """Who has no credentials asks as anybody, for buckets that are public."""
        from fsspec.asyn import sync
        from s3fs import S3FileSystem

        async def has_credentials(client: Any) -> bool:
            made = await client.set_session()
            certificates = client.session.get_config_variable("ca_bundle")
            check_made(made.meta.endpoint_url, certificates)
            self._told = endpoint_at(made.meta.endpoint_url)
            session = client.session
            check_switches(session.get_scoped_config())
            if client.anon:
                return True
            held = await session.get_credentials()
            if held is not None:
                profiles = session.full_config["profiles"]
                check_roles(held.method, session.profile or "default", profiles)
            return held is not None

        check_variable()
        with settings_told():
            client = S3FileSystem(skip_instance_cache=True)
            is_known = sync(client.loop, has_credentials, client)
        made = sync(client.loop, client.set_session).meta
        if made.config.proxies is None:  # else s3fs has proxies of the user's own
            check_way("s3fs", made.endpoint_url, proxy_of_python, self._told)
        check_way("TensorStore", made.endpoint_url, proxy_of_curl, self._told)
        return client if is_known else S3FileSystem(anon=True, skip_instance_cache=True)


def _object(key: str, size: int, found: dict[str, Any]) -> StoredObject:
    nanoseconds = int(found["LastModified"].timestamp() * 1_000_000) * 1000
    tag = quoted(found)
    digest = tag.strip('"')  # an MD5, unless it was made in parts, or with a key of the service's
    with suppress(ValueError):
        digest = base64.b64encode(bytes.fromhex(digest)).decode()
    return StoredObject(key, size, nanoseconds, tag, digest)
