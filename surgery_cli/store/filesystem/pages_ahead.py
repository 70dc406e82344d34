"""First pages of listings that are asked for before they are looked at."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeAlias

from surgery_cli.store.filesystem.background import in_background
from surgery_cli.store.filesystem.object_service import ObjectService, Page

Asked: TypeAlias = tuple[str, str]
"""What the names in a page begin with, and the delimiter: '/' for one folder, '' for everything below."""


class PagesAhead:
    """Those of one bucket. May be used from one thread at a time."""

    def __init__(self, service: ObjectService, bucket: str) -> None:
        self._service = service
        self._bucket = bucket
        self._coming: dict[Asked, Future[Page]] = {}
        self._begun: dict[Asked, Future[Page]] = {}
        """Asked for before anything else was: for the first look, and for none that asks whether something changed."""

    def ask(self, asked: Asked) -> None:
        """The page is under way, if it was not."""
        if asked not in self._coming:
            is_begun = asked in self._begun
            self._coming[asked] = self._begun.pop(asked) if is_begun else self._request(asked)

    def begin(self, asked: Asked) -> Future[Page]:
        """As ``ask``, of a page that is to outlive a ``forget`` that says ``but_begun``."""
        if asked not in self._begun:
            self._begun[asked] = self._request(asked)
        return self._begun[asked]

    def _request(self, asked: Asked) -> Future[Page]:
        return in_background(self._service.page, self._bucket, *asked, None)

    def are_coming(self, asked: Asked) -> bool:
        return asked in self._coming

    def whole_ones(self) -> list[str]:
        """What the names begin with in those that tell of everything below."""
        return [prefix for prefix, delimiter in self._coming if not delimiter]

    def page(self, prefix: str, delimiter: str = "") -> Page:
        """The page, which is looked at now."""
        if (coming := self._coming.pop((prefix, delimiter), None)) is not None:
            return coming.result()
        return self._service.page(self._bucket, prefix, delimiter, None)

    def forget(self, has_changed: Callable[[str], bool], *, but_begun: bool = False) -> None:
        """Those no longer come whose names begin with what may have changed."""
        self._coming = _without(self._coming, has_changed)
        if not but_begun:
            self._begun = _without(self._begun, has_changed)


def _without(
    pages: dict[Asked, Future[Page]], has_changed: Callable[[str], bool]
) -> dict[Asked, Future[Page]]:
    return {asked: page for asked, page in pages.items() if not has_changed(asked[0])}
