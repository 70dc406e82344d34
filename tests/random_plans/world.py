"""What stands beside the checkpoint that is edited: donors, array files, names that are taken."""

from __future__ import annotations

from pathlib import Path as File
from typing import Any

import numpy as np

from tests.random_plans.layouts import LAYOUTS, Layout, as_numpy
from tests.random_plans.model import Leaf, Path, Refused, Slot, State, is_below, printed
from tests.random_plans.patterns import Pattern, patterns_of
from tests.random_plans.trees import Sample, other_values, values


class World:
    """A folder with a sample in a layout; donors and files are made when a plan first names them."""

    def __init__(self, folder: File, layout: Layout, sample: Sample) -> None:
        self.folder, self.layout, self.sample = folder, layout, sample
        self.source = folder / ("source.msgpack" if layout.is_file else "source")
        layout.save(self.source, sample.tree)
        names = tuple(sample.tree) if layout.has_items else ("default",)
        self.own, self.items = names[0], names if len(names) > 1 else ()
        self.stored = {p: as_numpy(v) for p, v in self.restored(self.source, self.items).items()}
        self.has_steps = layout.is_step
        self.taken: frozenset[str] = frozenset()
        self._donors: dict[str, dict[Path, Any]] = {}
        self._arrays: dict[str, np.ndarray] = {}

    def state(self) -> State:
        facts = self.sample.facts
        is_alone = self.layout.has_items and not self.items
        if is_alone:
            facts = facts.renamed(lambda path: path[1:])
        root = self.sample.root[is_alone:]
        return State(
            {path: Leaf(value, ("", path)) for path, value in self.stored.items()},
            {path: slot for path, slot in facts.slots.items() if path in self.stored},
            {clock: owner for clock, owner in facts.clocks.items() if clock in self.stored},
            root,
            (self.sample.optimizer_at,) if self.sample.optimizer != "none" else (),
            self.items,
        )

    def restored(self, path: File, items: tuple[str, ...]) -> dict[Path, Any]:
        """What Orbax restores of a result whose trees have these names."""
        return self.layout.restore(path, items, self.own)

    # --- donors ---------------------------------------------------------------------------------------------

    def donor(self, number: int) -> str:
        """A checkpoint like the source with other numbers, in one of the layouts of a flat directory."""
        path = self.folder / f"donor{number}"
        if str(path) not in self._donors:
            layout = LAYOUTS[number % 4]
            layout.save(path, other_values(self.sample, number + 100))
            self._donors[str(path)] = {p: as_numpy(v) for p, v in layout.restore(path).items()}
        return str(path)

    def is_checkpoint(self, text: str) -> bool:
        return text in self._donors

    def array_file(self, dtype: str, shape: tuple[int, ...], seed: int, *, is_zip: bool) -> str:
        array = values(dtype, shape, seed)
        name = f"{dtype}-{'x'.join(map(str, shape))}-{seed}"
        path = self.folder / f"{name}.{'npz' if is_zip else 'npy'}"
        text = f"{path}:entry" if is_zip else str(path)
        if is_zip:
            np.savez(path, entry=array, other=np.zeros(1))
        else:
            np.save(path, array)
        self._arrays[text] = array
        return text

    def function(self, name: str) -> str:
        """A function in a file of the user's: what it does to an array is half of it, in its own dtype."""
        path = self.folder / "edit.py"
        path.write_text(f"def {name}(array, path):\n    return array * array.dtype.type(0.5)\n")
        return f"{path}:{name}"

    def array(self, text: str) -> np.ndarray:
        return self._arrays[text]

    def _find(self, donor: str, wanted: str) -> Path:
        leaves = self._donors[donor]
        found = [p for p in leaves if printed(p) == wanted and not Leaf(leaves[p]).is_empty]
        if len(found) != 1:
            raise Refused(2, f"the donor has {len(found)} leaves '{wanted}'")
        return found[0]

    def leaf_of(self, donor: str, path: Path) -> Any:
        """The donor's leaf at the same path."""
        leaves = self._donors[donor]
        return leaves[path if path in leaves else self._find(donor, printed(path))]

    def counterpart(self, given: str, path: Path, edit: Any) -> tuple[str, Path, Any]:
        """What ``with`` and ``from`` put in the place of a leaf: a source, a path in it, the value."""
        if given in self._arrays:
            patterns = [p for p in patterns_of(edit["at"]) if p.names(path)]
            if ":" in given and patterns[0].nodes(path)[-1] != path:
                raise Refused(2, "what follows the node is appended to the entry")
            return given, (), self._arrays[given]
        start = edit.get("from", "")
        if not start:
            found = path if path in self._donors[given] else self._find(given, printed(path))
        else:
            pattern = next(p for p in patterns_of(edit["at"]) if p.names(path))
            found = self._find(given, _appended(start, pattern, path))
        return given, found, self._donors[given][found]

    def tree_of(self, donor: str, start: str) -> dict[Path, Leaf]:
        leaves = self._donors[donor]
        nodes = {p[:n] for p in leaves for n in range(len(p) + 1)}
        found = [node for node in nodes if printed(node) == start]
        if len(found) != 1:
            raise Refused(2, f"the donor has {len(found)} places '{start}'")
        return {
            path[len(found[0]) :]: Leaf(value, (donor, path))
            for path, value in leaves.items()
            if is_below(path, found[0])
        }

    def twin_of(self, home: tuple[str, Path], slot: Slot, before: State) -> Any:
        """What the donor has for a slot, if the donor's param is ``home``."""
        donor, param = home
        slots = self.sample.facts.slots.values()
        twin = next(
            s for s in slots if s.node[-1] == slot.node[-1] and printed(s.param) == printed(param)
        )
        return self._donors[donor][self._find(donor, printed(twin.path))]


def _appended(start: str, pattern: Pattern, path: Path) -> str:
    tail = path[len(pattern.nodes(path)[-1]) :]
    return "/".join([start, *map(str, tail)])
