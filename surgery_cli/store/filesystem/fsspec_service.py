"""What services have in common that are spoken with by fsspec's clients."""

from __future__ import annotations

import base64
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, ClassVar

from surgery_cli.inputs.slow_answers import waited_for
from surgery_cli.store.filesystem.endpoints import Endpoint
from surgery_cli.store.filesystem.object_service import (
    STREAMED_BYTES,
    ServiceWords,
    asking,
)


def md5_of(content: bytes) -> str:
    """As services write it."""
    return base64.b64encode(hashlib.md5(content, usedforsecurity=False).digest()).decode()


class FsspecService(ABC):
    """See ``ObjectService``. The clients find credentials as the services' own tools do, and try again with growing
    pauses what may go better then.
    """

    words: ClassVar[ServiceWords]

    @property
    def scheme(self) -> str:
        return self.words.scheme

    def parts_of(self, size: int) -> int:
        return 1

    def load(self) -> None:
        with suppress(ImportError):  # which is said where something is asked
            self._import()

    @abstractmethod
    def _import(self) -> None:
        """Load the package of the client. Raises ImportError."""

    def stream(self, bucket: str, key: str, *, exclusively: bool) -> Any:
        with self._asking(bucket, key):
            return self._client.open(
                f"{bucket}/{key}", "xb" if exclusively else "wb", block_size=STREAMED_BYTES
            )

    @contextmanager
    def _asking(
        self, bucket: str, key: str | None = None, *, is_of_version: bool = False
    ) -> Iterator[None]:
        asked = asking(
            self.words,
            bucket,
            key,
            is_of_version=is_of_version,
            is_anybody=self._is_anybody,
            endpoint=self._endpoint,
        )
        with waited_for(f"{self.scheme}://{bucket}" + (f"/{key}" if key else "")), asked:
            yield

    def _endpoint(self) -> Endpoint | None:
        """Where the user has said that the service is, as far as that is known."""
        return None

    def _is_anybody(self) -> bool:
        """True if the client asks without credentials, and that is not said in the service's answers."""
        return False

    @cached_property
    def _client(self) -> Any:
        return self._connected()

    @abstractmethod
    def _connected(self) -> Any:
        """fsspec's file system for the service."""
