"""Networks, states and copies put together at random: no state is given to what its optimizer does not train."""

from __future__ import annotations

import random
from typing import Any

import jax.numpy as jnp
import optax
import pytest

from surgery_cli.optimizer.detect.survey import OptimizerSurvey, survey
from surgery_cli.tree.paths import LeafPath
from tests.optimizer.optax_registry import tree_of

TX = optax.chain(optax.clip(1.0), optax.adam(1e-2))
ROLES = (
    ("actor", "critic"),
    ("gen", "disc"),
    ("q1", "q2"),
    ("policy", "value"),
    ("text", "vision"),
)
COPIES = ("ema", "target", "slow", "best", "momentum", "polyak", "average", "teacher")


def _net(draw: random.Random, out: int) -> dict[str, Any]:
    layers = {f"d{n}": {"kernel": jnp.ones((4, 4)), "bias": jnp.ones(4)} for n in range(2)}
    return {**layers, "head": {"kernel": jnp.ones((4, out))}}


LAYOUTS = ("_apart", "_together", "_nested", "_joint", "_numbered")


class Layout:
    """A tree, and by the node of each state the node of the params that it is of."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.tree: dict[str, Any] = {}
        self.truth: dict[str, str] = {}
        self.roles = self.draw.choice(ROLES)[: self.draw.choice((1, 2, 2))]
        sizes = self.draw.choice(((2, 3), (2, 2)))
        self.nets = dict(zip(self.roles, (_net(self.draw, n) for n in sizes), strict=False))
        self.has_more = self.draw.random() < 0.3
        getattr(self, self.draw.choice(LAYOUTS))()
        for _ in range(self.draw.choice((0, 1, 1, 2))):
            self._copy()

    def _put(self, place: str, value: Any) -> None:
        *above, last = place.split("/")
        node = self.tree
        for key in above:
            node = node.setdefault(key, {})
        node[last] = value

    def _params(self, role: str) -> dict[str, Any]:
        more = {"bn": {"mean": jnp.ones(4), "var": jnp.ones(4)}} if self.has_more else {}
        return {**self.nets[role], **more}

    def _state(self, place: str, of: str, params: Any) -> None:
        self._put(place, TX.init(params))
        self.truth[place] = of

    def _apart(self) -> None:
        """Each network and each state at the top, by name."""
        suffix = self.draw.choice(("_params", "", "_variables"))
        form = self.draw.choice(
            ("{}_opt_state", "{}_opt", "opt_{}", "opt_state_{}", "optimizer_{}")
        )
        for role in self.roles:
            self._put(f"{role}{suffix}", self._params(role))
            self._state(form.format(role), f"{role}{suffix}", self.nets[role])

    def _together(self) -> None:
        """Networks in one node, states by name or in one node."""
        around = self.draw.choice(
            ("params", "model", "weights", "state/params", "variables/params")
        )
        form = self.draw.choice(("{}_opt", "opt_state/{}", "opt/{}", "optimizers/{}"))
        above = around.rpartition("/")[0] if around.startswith("state") else ""
        for role in self.roles:
            self._put(f"{around}/{role}", self._params(role))
            place = f"{above}/{form.format(role)}".lstrip("/")
            self._state(place, f"{around}/{role}", self.nets[role])

    def _nested(self) -> None:
        """A train state for each network."""
        params, state = self.draw.choice(
            (("params", "opt_state"), ("model", "optimizer"), ("params", "opt"))
        )
        for role in self.roles:
            self._put(f"{role}/{params}", self._params(role))
            self._state(f"{role}/{state}", f"{role}/{params}", self.nets[role])

    def _joint(self) -> None:
        """One optimizer of all networks."""
        self.has_more = False
        params, state = self.draw.choice((("params", "opt_state"), ("model", "opt")))
        for role in self.roles:
            self._put(f"{params}/{role}", self._params(role))
        self._state(state, params, self.nets)

    def _numbered(self) -> None:
        """States in a list, which no name tells apart."""
        around = self.draw.choice(("{}", "{}/params", "params/{}", "{}_params"))
        for number, role in enumerate(self.roles):
            place = around.format(role)
            self._put(place, self._params(role))
            self._state(f"opt_states/{number}", place, self.nets[role])
        self.tree["opt_states"] = list(self.tree["opt_states"].values())

    def _copy(self) -> None:
        """An average or target of one network, somewhere else."""
        role, word = self.draw.choice(self.roles), self.draw.choice(COPIES)
        form = self.draw.choice(
            ("{word}", "{word}_params", "{word}_{role}", "{role}_{word}", "{word}/{role}")
        )
        place = form.format(word=word, role=role)
        if place.split("/")[0] not in self.tree:
            net = self.draw.choice(
                (self.nets[role], self._params(role), {"params": self.nets[role]})
            )
            self._put(place, self.draw.choice((net, net, dict(self.nets))))


def _wrong(layout: Layout, found: OptimizerSurvey) -> list[str]:
    """What is said to be of other params than it is, of slots that no question is about."""
    said = []
    for slot in found.slots.values():
        owners = [
            of for state, of in layout.truth.items() if slot.path.text.startswith(f"{state}/")
        ]
        if not slot.in_optimizer or not owners or found.questions_about([slot.param]):
            continue
        (owner,) = owners
        if not slot.param.text.startswith(f"{owner}/"):
            said.append(f"{slot.path} of {slot.param}, not of {owner}")
    return said


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(800))
def test_no_state_is_given_to_what_its_optimizer_does_not_train(seed: int) -> None:
    layout = Layout(seed)
    tree = tree_of(layout.tree)
    found = survey(tree)
    assert _wrong(layout, found) == []
    slots = {slot.param for slot in found.slots.values() if slot.in_optimizer}
    for of in layout.truth.values():
        trained = [path for path in tree if path.text.startswith(f"{of}/") and "bn" not in path]
        for param in trained:  # it has its slots, or an edit of it asks
            assert LeafPath(param) in slots or found.questions_about([param]), param
