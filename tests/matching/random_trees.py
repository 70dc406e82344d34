"""Random trees, and what a random chain of true transformations makes of them: which leaf is which is known."""

import numpy as np

from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec, TreeSpec

SYNONYMS = [
    ("attn", "self_attn", "attention", "self_attention"),
    ("mlp", "ffn", "feed_forward"),
    ("q_proj", "query", "wq"),
    ("k_proj", "key", "wk"),
    ("v_proj", "value", "wv"),
    ("o_proj", "out_proj"),
    ("up_proj", "fc1", "c_fc"),
    ("down_proj", "fc2"),
    ("input_layernorm", "ln_1", "attention_norm"),
    ("embed_tokens", "wte", "token_embedder"),
    ("head", "lm_head", "logits_dense"),
]
NONSENSE = ["alpha", "bravo", "carol", "delta", "echo", "fox", "golf", "hotel"]
ROLES = [("weight", "kernel"), ("bias",), ("scale", "weight")]
SIZES = [2, 3, 4, 6, 8, 12]


class Trial:
    """A tree with values, another that was made of it, and the pairs of leaves that are the same."""

    def __init__(self, seed, *, reorders=True):
        """``reorders``: layers may get another order, and elements one that only values tell."""
        self.draw = np.random.default_rng(seed)
        self.reorders = reorders
        self.old, self.new, self.truth = {}, {}, set()
        self._groups()

    def some(self, choices):
        return choices[self.draw.integers(len(choices))]

    def chance(self, share):
        return self.draw.random() < share

    def _groups(self):
        sides = [self.some(["", "model.", "params/"]), self.some(["", "params/", "params/net/"])]
        layers = int(self.draw.integers(1, 4))
        order = list(range(layers))
        if self.reorders and self.chance(0.3):
            self.draw.shuffle(order)
        heads = [
            self.some(["layers.{}.", "h_{}/", "block{}/"]),
            self.some(["layers_{}/", "blocks/{}/"]),
        ]
        stack = layers > 1 and self.chance(0.4)
        start = int(self.chance(0.2))
        for words in self._names():
            in_layers = self.chance(0.7)
            shape = tuple(self.some(SIZES) for _ in range(self.some([1, 2, 2, 2, 3])))
            role = self.some(ROLES)
            texts = [
                f"{self.some(words)}.{self.some(role)}",
                f"{self.some(words)}/{self.some(role)}",
            ]
            change, result = self._change(shape)
            axis = int(self.draw.integers(len(result) + 1)) if stack and in_layers else None
            members = []
            for n in range(layers if in_layers else 1):
                name = sides[0] + (heads[0].format(n) if in_layers else "") + texts[0]
                while name in self.old:
                    name += "x"
                values = self._values(shape)
                self.old[name] = values
                members.append((name, change(values)))
            members = [members[n] for n in order] if in_layers else members
            if axis is not None:
                place = sides[1] + "layers/" + texts[1]
                while place in self.new:
                    place += "x"
                self.new[place] = np.stack([values for _, values in members], axis)
                self.truth |= {(name, place) for name, _ in members}
                continue
            for n, (name, values) in enumerate(members):
                place = sides[1] + (heads[1].format(n + start) if in_layers else "") + texts[1]
                while place in self.new:
                    place += "x"
                self.new[place] = values
                self.truth.add((name, place))
        if self.chance(0.3):
            name = self.some(sorted(self.old))
            self.new["tied/copy"] = self.old[name]
            self.truth.add((name, "tied/copy"))
        if self.chance(0.3):
            self.new["fresh/extra"] = self._values((self.some(SIZES), self.some(SIZES)))
        if self.chance(0.3):
            self.old["left/over"] = self._values((self.some(SIZES), self.some(SIZES)))
        self.new = {name: np.ascontiguousarray(values) for name, values in self.new.items()}

    def _names(self):
        """Groups of names for one thing; some that no vocabulary has, some misleading."""
        known = [list(group) for group in SYNONYMS]
        self.draw.shuffle(known)
        found = known[: self.draw.integers(2, 8)]
        found += [[a, b] for a, b in zip(NONSENSE[::2], NONSENSE[1::2], strict=True)][
            : self.draw.integers(3)
        ]
        if self.reorders and self.chance(0.2) and len(found) > 1:
            found[0], found[1] = [found[0][0], found[1][-1]], [found[1][0], found[0][-1]]
        return found

    def _change(self, shape):
        """What becomes of values of that shape, and the shape that they get."""
        kind = self.some(["same", "same", "turn", "split"])
        if kind == "turn" and len(shape) > 1:
            axes = tuple(int(n) for n in self.draw.permutation(len(shape)))
            return (lambda v: v.transpose(axes)), tuple(shape[n] for n in axes)
        if kind == "split" and len(shape) == 2 and shape[0] % 2 == 0 and shape[0] > 2:
            result = (shape[1], 2, shape[0] // 2)
            return (lambda v: v.T.reshape(result)), result
        return (lambda v: v), shape

    def _values(self, shape):
        kind = self.draw.random()
        if kind < 0.1:
            return np.full(shape, self.some([0, 1]), np.float32)
        if kind < 0.2:
            return self.draw.integers(0, 3, shape).astype(
                np.float32
            )  # a few numbers, over and over
        return self.draw.standard_normal(shape).astype(np.float32)


class Stored:
    """Arrays as a source that is read from."""

    def __init__(self, arrays):
        self.arrays = {path_of(name): values for name, values in arrays.items()}
        self.tree = TreeSpec(
            {
                path: LeafSpec(kind=LeafKind.ARRAY, shape=values.shape, dtype=str(values.dtype))
                for path, values in self.arrays.items()
            }
        )

    def read(self, path, window=None):
        values = self.arrays[path]
        return values if window is None else values[window]


def path_of(name):
    """Names with slashes are paths; others one key, as those of safetensors."""
    return LeafPath(name.split("/"))


def leaf_pairs(pair):
    """The leaves of the two trees that a pair says to be one, as they print."""
    old, new = pair.old.members, pair.new.members
    count = max(len(old), len(new))
    return {
        (str(a), str(b))
        for a, b in zip(old * (count // len(old)), new * (count // len(new)), strict=True)
    }


def made_of(pair, arrays):
    """What a pair makes of its old leaves: arrays by the names of the new ones."""
    form, old = pair.form, [arrays[path] for path in pair.old.members]
    if form.unstack is not None:
        old = [np.take(old[0], n, form.unstack) for n in range(len(pair.new.members))]
    old = [values if form.change is None else form.change.of(values) for values in old]
    made = [form.arrangement.of(values) for values in old]
    if form.stack is not None:
        made = [np.stack(made, form.stack)]
    return dict(zip(pair.new.members, made, strict=True))
