"""Broken checkpoints by real saves that were killed and real files that were damaged, with their truth."""

import json
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

CORPUS = Path(__file__).parent.parent / "fixtures" / "broken.tar.xz"


class Case(NamedTuple):
    """A broken checkpoint; ``leaves`` says of each stored name what is left, ``values`` what was saved."""

    broken: Path
    layout: str
    leaves: dict[str, dict]
    values: dict[str, np.ndarray]

    def decodes_wrong(self, name: str) -> bool:
        """True for a leaf in which bits were flipped that no checksum covers."""
        return bool(self.leaves[name].get("wrong"))


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> list[Case]:
    folder = tmp_path_factory.mktemp("broken")
    with tarfile.open(CORPUS) as packed:
        packed.extractall(folder, filter="data")
    return [_case(place) for place in sorted((folder / "corpus").glob("[0-9]*"))]


def _case(place: Path) -> Case:
    truth = json.loads((place / "truth.json").read_text())
    broken = next(place.glob("ck*"), place / "ck")
    if truth["layout"] == "manager":  # a root with one step
        broken = next(broken.glob("7*"), broken)
    with np.load(place / "truth.npz") as members:
        values = {name: members[leaf["member"]] for name, leaf in truth["leaves"].items()}
    return Case(broken, truth["layout"], truth["leaves"], values)
