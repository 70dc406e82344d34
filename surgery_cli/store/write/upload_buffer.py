"""What TensorStore writes to a bucket: held in memory, read back there, and sent object by object, each once."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from surgery_cli.errors import WriteError
from surgery_cli.inputs.buckets import BucketPath
from surgery_cli.store import filesystem
from surgery_cli.store.filesystem.interruptions import Threads
from surgery_cli.store.filesystem.write_failures import write_errors
from surgery_cli.store.orbax.arrays import MEMORY, StoredArray, Window, below
from surgery_cli.store.orbax.btree_nodes import MANIFEST
from surgery_cli.store.orbax.contexts import POOLS, new_context
from surgery_cli.store.orbax.zarr import DOCUMENT_NAMES
from surgery_cli.store.write.array_access import are_same, open_for_writing, read_block, store_block
from surgery_cli.store.write.database_versions import newest_version
from surgery_cli.store.write.item_plan import PlannedLeaf
from surgery_cli.store.write.transactions import atomic
from surgery_cli.words.advice import NOTHING_LEFT, worded

if TYPE_CHECKING:
    import numpy as np

_OF_DATABASE: Final = (
    "value_data_prefix",
    "btree_node_data_prefix",
    "version_tree_node_data_prefix",
)


def buffer_for(target: Path) -> UploadBuffer | None:
    """A buffer for a folder in a bucket; a disk needs none."""
    return UploadBuffer(target) if isinstance(target, BucketPath) else None


class UploadBuffer:
    """The parts of what is written to one folder, and what became of them.

    A service vouches for each object that was sent: it holds it against the digest that comes with it. So what was read
    back in memory, decoded from the very bytes that were sent, need not be read from there again.
    """

    def __init__(self, target: Path) -> None:
        import tensorstore as ts

        self.target = target
        self.context = new_context()
        # what was just written may still be in the cache of those who write: nothing would be decoded
        self.reading = ts.Context(POOLS, parent=self.context)
        self.nodes: list[dict[str, Any]] = []
        """Layers of the database that parts go on from; who reads what was made reads what stands."""
        self.in_memory: list[BufferedPart] = []
        """The parts whose objects are there; nodes of the database in them are read until others have come."""
        self.sent: dict[str, int] = {}
        """The object that stands under each name since, as ``status`` tells it."""
        self.read_back: set[str] = set()
        """The arrays of which all that was written was read back."""
        self.copied: set[str] = set()
        """Those of which all that is taken as it is stored was read back, and is what was taken."""

    def part(self) -> BufferedPart:
        """What is written together, and sent together."""
        return BufferedPart(self, secrets.token_hex(4))

    def let_go(self) -> None:
        """Keep no copy of what was sent: nothing more is put into the database."""
        for part in list(self.in_memory):
            part.let_go()

    @cached_property
    def _memory(self) -> Any:
        import tensorstore as ts

        return ts.KvStore.open(MEMORY, context=self.context).result()

    @property
    def manifest(self) -> dict[str, Any] | None:
        """The manifest of the database that the parts have made, which was not sent; None where there is none."""
        import tensorstore as ts

        if not self._memory.read(MANIFEST).result().value:
            return None
        found: dict[str, Any] = ts.ocdbt.dump(self._memory).result()
        return found

    def end_database(self) -> bytes | None:
        """The manifest that is still to be sent: of the newest version alone, for no history stands beside it."""
        if (made := self.manifest) is None:
            return None
        content = newest_version(made)
        self.begin_database(content)
        return content

    @property
    def folder(self) -> Any:
        """What will stand in the folder, opened: read in memory as far as it is still there."""
        import tensorstore as ts

        stack = {"driver": "kvstack", "layers": self.layers(self.in_memory)}
        return ts.KvStore.open(stack, context=self.context).result()

    def layers(self, parts: Iterable[BufferedPart]) -> list[dict[str, Any]]:
        """The folder, with what these parts have of it, and the manifest, in memory."""
        return [
            {"base": filesystem.kvstore(self.target)},
            *({"prefix": p.prefix, "base": p.memory("objects", p.prefix)} for p in parts),
            {"exact": MANIFEST, "base": {**MEMORY, "path": MANIFEST}},
        ]

    def send(self, name: str, content: bytes) -> None:
        """Make an object of the folder."""
        self.sent[name] = filesystem.put(self.target / name, content)

    @property
    def stands(self) -> bool:
        """True if everything stands that was sent, as it was sent."""
        return self._stand(self.sent)

    def _stand(self, names: Iterable[str]) -> bool:
        """True if under these names the objects stand that were sent."""
        try:
            return all(
                self.sent.get(name) == filesystem.status(self.target / name).st_ino
                for name in names
            )
        except FileNotFoundError:
            return False

    def begin_database(self, manifest: bytes, nodes: Mapping[str, bytes] | None = None) -> None:
        """Let the parts go on from a database in the folder; of its objects, ``nodes`` are known."""
        self._memory.write(MANIFEST, manifest).result()
        for name, content in (nodes or {}).items():
            self._memory.write(f"nodes/{name}", content).result()
            self.nodes.append({"exact": name, "base": {**MEMORY, "path": f"nodes/{name}"}})

    def vouches_for(self, leaf: PlannedLeaf, array: StoredArray) -> bool:
        """True if all that was written of a stored array was read back, and stands as it was sent.

        Of what the leaf takes of others, the places are compared with what was meant.
        """
        if array.name not in self.read_back:
            return False
        if array.values:
            files = {extent.file for extent in array.extents}
        else:
            files = {below(array.name) + key for key in array.keys}
        if leaf.referred is not None:
            files &= self.sent.keys()
        return self._stand(files)

    def has_copied(self, array: StoredArray) -> bool:
        """True if what an array took as it was stored is known to be that, and stands as it was sent."""
        return array.name in self.copied and self._stand(one.file for one in array.extents)


class BufferedPart:
    """What is written together, as a batch of arrays: each encoded by itself, and then sent, or put into a database.

    Its data objects have names of their own, so that no other part's are meant.
    """

    def __init__(self, buffer: UploadBuffer, token: str) -> None:
        self._buffer = buffer
        self._token = token
        self._lock = threading.Lock()
        self._opened: dict[str, Any] = {}
        self.is_sent = False
        self.begun: list[PlannedLeaf] = []
        """The arrays that this part makes; of others an earlier one has written the first blocks."""

    def give_up(self) -> None:
        """Nothing of it is to be sent."""

    def begin(self, leaf: PlannedLeaf) -> None:
        """See ``Batch``."""
        if leaf.referred is None:
            self.begun.append(leaf)

    def write(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        """See ``Batch``; what was encoded is read back at once."""
        with self._lock:
            array = self._opened.get(leaf.name)
            if array is None:
                array = self._opened[leaf.name] = self._array(leaf)
        store_block(array, window, values, str(leaf.draft_path))
        self.check(leaf, window, values)

    def check(self, leaf: PlannedLeaf, window: Window, values: np.ndarray[Any, Any]) -> None:
        """Read back what was encoded of a block.

        Raises:
            WriteError: it does not read back as it was computed.
        """
        kvstore = self.memory("arrays", below(leaf.name))
        zarr = leaf.document["zarr_format"] if leaf.document else 2
        reading, is_part = self._buffer.reading, leaf not in self.begun
        found = read_block(zarr, kvstore, leaf, reading, window, is_part=is_part)
        if found is None or not are_same(found, values):
            raise WriteError(
                f"'{leaf.draft_path}' does not read back as it was computed",
                why="what was encoded of it decodes to other values; it was not sent",
                fix=worded("{}; this is worth a report", NOTHING_LEFT),
            )
        self._buffer.read_back.add(leaf.name)

    def _array(self, leaf: PlannedLeaf) -> Any:
        with write_errors(str(leaf.draft_path)):
            return open_for_writing(
                leaf.document["zarr_format"] if leaf.document else 2,
                self.memory("arrays", below(leaf.name)),
                leaf.document,
                self._buffer.context,
                create=leaf in self.begun,
            )

    def database(self, folder: str = "") -> dict[str, Any]:
        """The spec of the database in the target, or in a folder of it: read there, and written in memory."""
        layers = [*self._buffer.layers([*self._buffer.in_memory, self]), *self._buffer.nodes]
        stack = {"driver": "kvstack", "path": folder, "layers": layers}
        return {"driver": "ocdbt", "base": stack, **dict.fromkeys(_OF_DATABASE, self.prefix)}

    @property
    def prefix(self) -> str:
        """What the names of its data objects begin with."""
        return f"d/{self._token}"

    def memory(self, room: Literal["arrays", "objects"], path: str = "") -> dict[str, Any]:
        """Where its arrays are encoded, or where objects stand until they are sent."""
        return {**MEMORY, "path": f"{self._token}/{room}/{path}"}

    def _opened_memory(self, room: Literal["arrays", "objects"]) -> Any:
        import tensorstore as ts

        return ts.KvStore.open(self.memory(room), context=self._buffer.context).result()

    def put_into(self, database: Any, gone: Collection[str]) -> None:
        """Put the arrays into a database, in one atomic transaction, without the keys that are ``gone``.

        Parts are put there one after the other, and may be sent side by side.
        """
        self._opened.clear()
        memory = self._opened_memory("arrays")
        names = [key.decode() for key in memory.list().result()]
        for name in names[:1]:  # nodes that were read join the data in one object; others come late
            database.read(f"{name}\0").result()  # where there is nothing
        with atomic() as transaction:
            inside = database.with_transaction(transaction)
            for name in gone:
                inside.write(name, None).result()
            for name in names:
                inside.write(name, memory.read(name).result().value).result()
                memory.write(name, None).result()
        for part in [one for one in self._buffer.in_memory if one.is_sent]:
            part.let_go()
        self._buffer.in_memory.append(self)

    def let_go(self) -> None:
        """Keep no copy of what was sent."""
        memory = self._opened_memory("objects")
        for name in memory.list().result():
            memory.write(name, None).result()
        self._buffer.in_memory.remove(self)

    def send_arrays(self) -> None:
        """Send the arrays as they are, their documents last."""
        self._opened.clear()
        memory = self._opened_memory("arrays")
        names = [key.decode() for key in memory.list().result()]
        documents = [name for name in names if name.endswith(tuple(DOCUMENT_NAMES.values()))]
        self._send(memory, sorted(set(names) - set(documents)))
        self._send(memory, documents)

    def send_objects(self) -> None:
        """Send what a database consists of, but for its manifest."""
        memory = self._opened_memory("objects")
        is_read = self in self._buffer.in_memory
        self._send(memory, [key.decode() for key in memory.list().result()], stays=is_read)
        self.is_sent = True

    def _send(self, memory: Any, names: Collection[str], *, stays: bool = False) -> None:
        target = self._buffer.target

        def send(name: str) -> tuple[str, int]:
            number = filesystem.put(target / name, memory.read(name).result().value)
            if not stays:
                memory.write(name, None).result()
            return name, number

        if names:
            with Threads(min(len(names), filesystem.requests_at_once(target))) as pool:
                self._buffer.sent.update(pool.map(send, names))
