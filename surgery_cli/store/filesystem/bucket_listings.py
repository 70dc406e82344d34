"""What stands in a bucket, asked once: folders are but the begins of names, and every question costs a request."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Final, TypeAlias

from surgery_cli.inputs.buckets import ServiceRefusal
from surgery_cli.store.filesystem.object_service import (
    ObjectService,
    Page,
    StoredObject,
    unless_refused,
)
from surgery_cli.store.filesystem.pages_ahead import PagesAhead

Folder: TypeAlias = dict[str, StoredObject | None]
"""What stands in a folder by name; None is a folder."""

_SINGLE_LOOKS: Final = 16
"""A list is a request for each thousand objects: so many may be wanted of a large folder that nobody goes through."""


class Listings:
    """The folders of one bucket as far as they were listed. What was seen holds until ``forget`` is called.

    A folder is listed with all that is below it where that is one page; else by itself. May be used from threads.
    """

    def __init__(self, service: ObjectService, bucket: str) -> None:
        self._service = service
        self._bucket = bucket
        self._lock = threading.RLock()
        self._folders: dict[str, Folder] = {}
        """By what the names of all in it begin with: '' or text with a slash at its end."""
        self._looked_up: dict[str, StoredObject | None] = {}
        """Objects that were asked for by name, where their folder is not listed; None: it is not there."""
        self._small: set[str] = set()
        """Folders that were one page with all below them: they are listed again where one object is asked for."""
        self._looks: Counter[str] = Counter()  # how many objects of a folder were asked for
        self._ahead = PagesAhead(service, bucket)

    def look_ahead(self, key: str, *, around: bool) -> None:
        """Ask at once for what stands under a name, and in the folder ``around`` it: they will be looked at."""
        folder = key[: key.rfind("/") + 1]
        with self._lock:
            if self._is_known(folder):
                return
            wanted = [] if key in self._looked_up else [(key, "")]
            for asked in wanted + [(folder, "/")] * around:
                self._ahead.ask(asked)

    def begin(self, key: str) -> Future[Page]:
        """Ask at once for what stands under a name, which comes, and around it: for who says ``but_begun``."""
        with self._lock:
            self._ahead.begin((key[: key.rfind("/") + 1], "/"))
            return self._ahead.begin((key, ""))

    def forget(self, key: str, *, but_begun: bool = False) -> None:
        """What was seen at and below ``key``, and of the folders around it, may have changed; ``but_begun``: not since
        ``begin`` asked.
        """
        below = f"{key}/" if key else ""

        def may_have_changed(name: str) -> bool:
            return name.startswith(below) or below.startswith(name)

        with self._lock:
            self._folders = {k: v for k, v in self._folders.items() if not may_have_changed(k)}
            kept = {k: v for k, v in self._looked_up.items() if not may_have_changed(f"{k}/")}
            self._looked_up = kept
            self._ahead.forget(may_have_changed, but_begun=but_begun)

    def made(self, key: str) -> None:
        """An object was made or replaced: what its folder holds is no longer known, but that the folder is there."""
        with self._lock:
            self._give_up_waiting(key)
            self._looked_up.pop(key, None)
            around = key[: key.rfind("/") + 1]
            self._folders.pop(around, None)
            while around:
                self._looked_up.pop(around[:-1], None)
                above, _, name = around[:-1].rpartition("/")
                above += "/" if above else ""
                if above in self._folders:
                    self._folders[above].setdefault(name, None)
                around = above

    def saw(self, found: StoredObject) -> None:
        """An object was looked up."""
        around, _, name = found.key.rpartition("/")
        around += "/" if around else ""
        with self._lock:
            self._looked_up[found.key] = found
            if around in self._folders:
                self._folders[around][name] = found

    def changed(self, key: str) -> None:
        """An object was made, replaced or deleted: what its folders hold is no longer known."""
        with self._lock:
            self._give_up_waiting(key)
            self._looked_up.pop(key, None)
            self._forget_around(key)

    def _give_up_waiting(self, key: str) -> None:
        """What was asked for before an object was made, replaced or deleted may not tell of that."""
        self._ahead.forget(key.startswith)

    def _forget_around(self, key: str) -> None:
        for at, char in enumerate(key):
            if char == "/":
                self._looked_up.pop(key[:at], None)
                self._folders.pop(key[: at + 1], None)
        self._folders.pop("", None)

    def removed(self, key: str) -> None:
        """An object was deleted; a folder is gone with the last one in it."""
        with self._lock:
            self._give_up_waiting(key)
            self._looked_up[key] = None
            while key:
                around, _, name = key.rpartition("/")
                key = around
                around += "/" if around else ""
                standing = self._folders.get(around)
                if standing is None:  # nor whether anything is left in it
                    self._forget_around(around)
                    return
                standing.pop(name, None)
                if standing or not around:
                    return
                del self._folders[around]
                self._small.discard(around)

    def folder(self, prefix: str) -> Folder:
        """What stands in a folder; nothing in one that is not there."""
        with self._lock:
            if not self._is_known(prefix):
                self._list(prefix)
            return self._folders.get(prefix, {})

    def below(self, prefix: str) -> Iterator[tuple[str, Folder]]:
        """A folder and all folders below it, each before those in it, by what follows ``prefix`` in their names."""
        with self._lock:
            if not self._is_known(prefix) or not self._is_whole(prefix):
                self._list_everything(prefix)
        waiting = [prefix]
        while waiting:
            place = waiting.pop()
            standing = self.folder(place)
            yield place[len(prefix) :], standing
            folders = sorted((name for name, o in standing.items() if o is None), reverse=True)
            waiting += [f"{place}{name}/" for name in folders]

    def find(self, key: str) -> StoredObject | None:
        """The object of that name; None for a folder.

        Raises:
            FileNotFoundError: neither stands there.
        """
        around, _, name = key.rpartition("/")
        around += "/" if around else ""
        with self._lock:
            for asked in self._ahead.whole_ones():
                if f"{key}/".startswith(f"{asked}/"):
                    self._look_up(asked)
            if key not in self._looked_up and not self._is_known(around):
                if self._ahead.are_coming((around, "/")):
                    with unless_refused():
                        self.folder(around)
                elif (small := self._small_around(key)) is not None:
                    self._list_again(small)
                else:
                    self._list_after_looks(around)
            if self._is_known(around):
                if name in (standing := self._folders.get(around, {})):
                    return standing[name]
                raise FileNotFoundError(key)
            if key not in self._looked_up:
                self._look_up(key)
            found = self._looked_up[key]
            if found is None and not self.folder(f"{key}/"):
                raise FileNotFoundError(key)
            return found

    def _list_after_looks(self, folder: str) -> None:
        """List a folder once so many of its objects were asked for one by one."""
        self._looks[folder] += 1
        if self._looks[folder] % _SINGLE_LOOKS == 0:
            with unless_refused():
                self.folder(folder)

    def _look_up(self, key: str) -> None:
        """Ask what stands under a name: one list tells of an object and of a folder, unless too much begins so."""
        page: Page | None = None
        try:
            page = self._ahead.page(key)
        except ServiceRefusal as error:
            if not error.is_answered:
                raise
        if page is not None and page.next_page is None:
            below = f"{key}/"
            self._looked_up[key] = next((o for o in page.objects if o.key == key), None)
            self._add_tree(below, [o for o in page.objects if o.key.startswith(below)])
            if self._folders[below]:
                self._small.add(below)
            return
        try:
            self._looked_up[key] = self._service.look_up(self._bucket, key)
        except FileNotFoundError:
            self._looked_up[key] = None

    def _small_around(self, key: str) -> str | None:
        """The outermost folder around an object that was one page when it was listed."""
        around = (key[: at + 1] for at, char in enumerate(key) if char == "/")
        return next((folder for folder in around if folder in self._small), None)

    def _is_known(self, prefix: str) -> bool:
        """True if it is known what stands in a folder, or that there is none."""
        if prefix in self._folders:
            return True
        if not prefix:
            return False
        around, _, name = prefix[:-1].rpartition("/")
        around += "/" if around else ""
        if around in self._folders:
            is_folder = self._folders[around].get(name, 0) is None  # which is not listed itself
            return not is_folder
        return self._is_known(around) if around else False

    def _is_whole(self, prefix: str) -> bool:
        """True if all folders below one are known."""
        folders = [name for name, o in self._folders.get(prefix, {}).items() if o is None]
        return all(
            f"{prefix}{name}/" in self._folders and self._is_whole(f"{prefix}{name}/")
            for name in folders
        )

    def _list_again(self, prefix: str) -> None:
        """As ``_list``, of a folder with all below it, of which some is no longer known."""
        self._folders = {k: v for k, v in self._folders.items() if not k.startswith(prefix)}
        self._list(prefix)

    def _list(self, prefix: str) -> None:
        if not self._ahead.are_coming((prefix, "/")):
            page = self._ahead.page(prefix)
            if page.next_page is None:
                if prefix and page.objects:
                    self._small.add(prefix)
                self._add_tree(prefix, page.objects)
                return
            self._small.discard(prefix)
        standing: Folder = {}
        for page in self._pages(prefix, "/", self._ahead.page(prefix, "/")):
            standing |= {name: None for p in page.prefixes if (name := p[len(prefix) : -1])}
            standing |= {name: o for o in page.objects if (name := o.key[len(prefix) :])}
        self._folders[prefix] = standing

    def _list_everything(self, prefix: str) -> None:
        first = self._service.page(self._bucket, prefix, "", None)
        pages = self._pages(prefix, "", first)
        self._add_tree(prefix, [stored for page in pages for stored in page.objects])

    def _pages(self, prefix: str, delimiter: str, page: Page) -> Iterator[Page]:
        """A page and those that follow it.

        Raises:
            ServiceRefusal: the service names a page as the next that it has given before: there would be no end.
        """
        yield page
        given: set[str] = set()
        while (token := page.next_page) is not None:
            if token in given:
                raise ServiceRefusal(
                    "its list has no end: it goes on from a place where it was before",
                    f"{self._service.scheme}://{self._bucket}/{prefix}",
                    "see what answers for the service there: an emulator, or a proxy between",
                )
            given.add(token)
            page = self._service.page(self._bucket, prefix, delimiter, token)
            yield page

    def _add_tree(self, prefix: str, objects: list[StoredObject]) -> None:
        """Take in all that stands below a folder. A name that ends in a slash is a folder's mark, not an object."""
        self._folders.setdefault(prefix, {})
        for stored in objects:
            around = prefix
            *folders, name = stored.key[len(prefix) :].split("/")
            for folder in folders:
                self._folders[around].setdefault(folder, None)
                around += f"{folder}/"
                self._folders.setdefault(around, {})
            if name:
                self._folders[around][name] = stored
