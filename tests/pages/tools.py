"""What other tools make of the small model: Orbax's by itself, the others by what their code does, in NumPy."""

import functools
import inspect
import re

import jax
import ml_dtypes
import numpy as np
import scipy.ndimage
from orbax.checkpoint import transform_utils
from orbax.checkpoint.experimental.model_surgery.transformations import (
    fusing,
    nesting,
    renaming,
    repeating,
    stacking,
)


def params_of(seed):
    """Params of the small model, by path."""
    draw = np.random.default_rng(seed).normal
    shapes = {"head/kernel": (4, 6), "positions": (1, 16, 4), "patch/kernel": (2, 2, 1, 4)}
    for n in range(3):
        for name in ("query", "key", "value"):
            shapes |= {f"layers_{n}/{name}/kernel": (4, 4), f"layers_{n}/{name}/bias": (4,)}
    flat = {path: draw(size=shape).astype("f4") for path, shape in shapes.items()}
    embedding = np.arange(48, dtype="f4").reshape(12, 4)
    return flat | {"head/bias": np.zeros(6, "f4"), "embed/embedding": embedding}


OLD, OTHER = params_of(1), params_of(2)
FRESH = params_of(3) | {"adapter/kernel": np.full((4, 2), 0.5, "f4")}
del FRESH["patch/kernel"]


def nested(flat, separator="/"):
    tree = {}
    for path, value in flat.items():
        *above, last = path.split(separator)
        node = functools.reduce(lambda node, key: node.setdefault(key, {}), above, tree)
        node[last] = value
    return tree


def flattened(tree, above=""):
    if not isinstance(tree, dict):
        return {above[:-1]: np.asarray(tree)}
    return {
        path: leaf
        for key, node in tree.items()
        for path, leaf in flattened(node, f"{above}{key}/").items()
    }


ARRAY = np.linspace(-2, 2, 24, dtype="f4").reshape(4, 6)
"""What `array.npy` holds."""


TOOLS = {}
"""What a tool makes of the params, by path: each row's judge, which may look at what was found."""
ROUNDED, WITHOUT_OPTIMIZER = set(), set()


def expected(row, found):
    """The params that the tool of the row gives."""
    given = [{path: leaf.copy() for path, leaf in OLD.items()}, found]
    judge = TOOLS[row]
    return judge(*given[: len(inspect.signature(judge).parameters)])


def judges(tool, feature, *, rounds=False, optimizer=True):
    def registered(judge):
        TOOLS[tool, feature] = judge
        if rounds:
            ROUNDED.add((tool, feature))
        if not optimizer:
            WITHOUT_OPTIMIZER.add((tool, feature))
        return judge

    return registered


def renamed(flat, *rules):
    """The tree with each rule applied to each path, in order: `re.sub`."""
    return {
        functools.reduce(lambda p, rule: re.sub(*rule, p), rules, p): v for p, v in flat.items()
    }


def without(flat, pattern):
    return {path: leaf for path, leaf in flat.items() if not re.fullmatch(pattern, path)}


def changed(flat, pattern, function):
    return {p: function(v) if re.fullmatch(pattern, p) else v for p, v in flat.items()}


# Orbax's transform_utils, by itself

TRANSFORMS = "Orbax transform_utils"
Transform = transform_utils.Transform


def transformed(flat, transformations, new, **options):
    """What Orbax makes of the tree; ``new`` are the paths of the new tree, or that tree."""
    new = new if isinstance(new, dict) else dict.fromkeys(new, 0)
    result = transform_utils.apply_transformations(
        nested(flat), transformations, nested(new), **options
    )
    return flattened(result)


@judges(TRANSFORMS, "`Transform(original_key=…)`")
def _(flat):
    new = renamed(flat, ("^head", "classifier"))
    rules = {r"classifier/(.*)": Transform(original_key=r"head/\1")}
    return transformed(flat, rules, new)


@judges(TRANSFORMS, "a regular expression as key")
def _(flat):
    new = renamed(flat, (r"layers_(\d)/(query|key)", r"block_\1/\2"))
    rules = {r"block_(\d)/(.*)": Transform(original_key=r"layers_\1/\2")}
    return transformed(flat, rules, new)


@judges(TRANSFORMS, "one original key for several new ones")
def _(flat):
    new = flat | {p.replace("_2", "_3"): 0 for p in flat if "_2" in p}
    return transformed(flat, {r"layers_3/(.*)": Transform(original_key=r"layers_2/\1")}, new)


@judges(TRANSFORMS, "`value_fn`")
def _(flat):
    return transformed(flat, {"head/kernel": Transform(value_fn=lambda x: 2 * x)}, flat)


@judges(TRANSFORMS, "`multi_value_fn`: a sum")
def _(flat):
    def summed(key, tree):
        name = key.rpartition("/")[2]
        return tree["layers_0"]["query"][name] + tree["layers_1"]["query"][name]

    return transformed(flat, {"layers_0/query/.*": Transform(multi_value_fn=summed)}, flat)


@judges(TRANSFORMS, "`multi_value_fn`: a part of a leaf")
def _(flat):
    first = Transform(multi_value_fn=lambda _, tree: tree["embed"]["embedding"][:6])
    return transformed(flat, {"embed/embedding": first}, flat)


@judges(TRANSFORMS, "`multi_value_fn`: the parts of one leaf")
def _(flat):
    new = without(flat, "embed/.*") | {"old/rows": 0, "new/rows": 0}
    rules = {
        "old/rows": Transform(multi_value_fn=lambda _, tree: tree["embed"]["embedding"][:8]),
        "new/rows": Transform(multi_value_fn=lambda _, tree: tree["embed"]["embedding"][8:]),
    }
    return transformed(flat, rules, new)


@judges(TRANSFORMS, "`multi_value_fn`: several leaves in one")
def _(flat):
    def joined(_, tree):
        return np.concatenate([tree[f"layers_{n}"]["key"]["bias"] for n in range(3)])

    new = without(flat, ".*/key/bias") | {"keys/bias": 0}
    return transformed(flat, {"keys/bias": Transform(multi_value_fn=joined)}, new)


@judges(TRANSFORMS, "`use_fallback=True`")
def _(flat):
    return transformed(flat, {"head/.*": Transform(use_fallback=True)}, params_of(3))


@judges(TRANSFORMS, "a key that the new tree lacks")
def _(flat):
    return transformed(flat, {}, without(flat, "layers_2/.*"))


@judges(TRANSFORMS, "a key that the original lacks")
def _(flat):
    return transformed(flat, {}, flat | {"adapter/kernel": FRESH["adapter/kernel"]})


@judges(TRANSFORMS, "`default_to_original=False`, with few keys named", optimizer=False)
def _(flat):
    new = {path: flat[path] for path in flat if path.startswith(("embed/", "head/"))}
    rules = {"(embed|head)/.*": Transform(use_fallback=True)}
    return transformed(flat, rules, new, default_to_original=False)


@judges(TRANSFORMS, "`merge_trees`")
def _(flat):
    return flattened(transform_utils.merge_trees(nested(flat), nested(FRESH)))


@judges(TRANSFORMS, "`intersect_trees`")
def _(flat):
    return flattened(transform_utils.intersect_trees(nested(flat), nested(FRESH)))


# Orbax's model_surgery, by itself: it takes flat trees

SURGERY = "Orbax model_surgery"


@judges(SURGERY, "`rename_by_regex`, its rules in order")
def _(flat):
    return renaming.rename_by_regex([("^layers_", "encoder_"), (r"(encoder_\d)/query", r"\1/q")])(
        flat
    )


@judges(SURGERY, "`fuse_by_pattern`")
def _(flat):
    fuse = fusing.fuse_by_pattern(
        pattern="layers_./(key|value)/",
        unique_parts=["key", "value"],
        fused_unique_part="kv",
        axis=-1,
    )
    return fuse(flat)


@judges(SURGERY, "`fuse_by_keys`")
def _(flat):
    keys = [f"layers_{n}/key/bias" for n in range(2)]
    return fusing.fuse_by_keys(source_keys=keys, target_key="bias")(flat)


@judges(SURGERY, "`stack` of numbered keys")
def _(flat):
    return stacking.stack(r"layers(_\d)/", expected_count=3)(flat)


@judges(SURGERY, "`stack(axis=1)`, of some keys")
def _(flat):
    some = {path: leaf for path, leaf in flat.items() if "query" in path}
    stacked = stacking.stack(r"layers(_\d)/query", axis=1)(some)
    return without(flat, ".*query.*") | renamed(stacked, ("layers/query", "queries"))


@judges(SURGERY, "a flat tree, with `.` between the keys")
def _(flat):
    return {path.replace("/", "."): leaf for path, leaf in flat.items()}


@judges(SURGERY, "`unflatten()`, of such a tree, as the first entry makes it here")
def _(flat):
    dotted = {path.replace("/", "."): leaf for path, leaf in flat.items()}
    return flattened(nesting.unflatten()(dotted))


@judges(SURGERY, "`repeat_by_pattern`, `repeat_by_keys`")
def _(flat):
    repeat = repeating.repeat_by_pattern
    return repeat(pattern=".*/key/kernel$", dimension=1, repeat_count=2)(flat)


# T5X: for each new name the first rule that matches it in full, expanded, is the old name

T5X = "T5X assignment_map"


def assigned(flat, new, rules):
    """By T5X's rules: what matches is read from the old name, what matches None is left to the start."""
    found = {}
    for name in new:
        for pattern, old in rules:
            if match := re.fullmatch(pattern, name):
                if old is not None:
                    found[name] = flat[match.expand(old)]
                break
        else:
            found[name] = flat[name]
    return found


@judges(T5X, "`(new, old)`, regular expressions")
def _(flat):
    new = renamed(flat, (r"(layers_\d)/key", r"\1/k"))
    return assigned(flat, new, [(r"(.*)/k/(.*)", r"\1/key/\2")])


@judges(T5X, "two new names of one old parameter")
def _(flat):
    new = flat | {f"layers_0/gate/{name}": 0 for name in ("kernel", "bias")}
    return assigned(flat, new, [(r"layers_0/gate/(.*)", r"layers_0/query/\1")])


@judges(T5X, "`(new, None)`: start from scratch")
def _(flat, found):
    drawn = found["head/kernel"]
    assert 0.25 < drawn.std() < 1  # lecun_normal of 4 inputs: 0.5
    assert not np.isin(drawn, flat["head/kernel"]).any()
    return assigned(flat, flat, [("head/kernel", None)]) | {"head/kernel": drawn}


@judges(T5X, "`(old, None)`, where the model has it no more")
def _(flat):
    new = without(flat, "layers_./value/.*")
    return assigned(flat, new, [("layers_./value/.*", None)])


@judges(T5X, "`merge_state`: what the checkpoint lacks, from the start")
def _(flat):
    return FRESH | flat


@judges(T5X, '`(r"state.*", None)`', optimizer=False)
def _(flat):
    return flat


@judges(T5X, r'`(r"(.*)expert(.*)", r"\1mlp\2")` of an upcycled model')
def _(flat):
    return changed(flat, "layers_./value/kernel", lambda x: np.stack([x] * 4))


# big_vision: `tree_replace` applies each rule to each name, None removes; `merge_params` keeps what is not to be loaded

BIG_VISION = "big_vision"


@judges(BIG_VISION, "`tree_replace` with a new name")
def _(flat):
    return renamed(flat, (r"^(layers_.)/query", r"\1/q"))


@judges(BIG_VISION, "`tree_replace` with `None`")
def _(flat):
    return without(flat, ".*/bias")


@judges(BIG_VISION, "`recover_tree`, of keys with slashes, as the first entry makes them here")
def _(flat):
    return flattened(nested(flat))


@judges(BIG_VISION, "`load` of `FILE:img`, a subtree")
def _(flat):
    return flat | {p: OTHER[p.replace("_1", "_0")] for p in flat if p.startswith("layers_1/")}


@judges(BIG_VISION, "`merge_params` with `dont_load`")
def _(flat):
    return OTHER | {path: leaf for path, leaf in flat.items() if re.fullmatch("head/.*", path)}


@judges(BIG_VISION, "`merge_params`, a parameter that only the model has")
def _(flat):
    return FRESH | flat


@judges(BIG_VISION, "`pyloop_to_scan`")
def _(flat):
    layers = [layers_of((flat, n, n + 1)) for n in range(3)]
    stacked = {p: np.stack([layer[p] for layer in layers]) for p in layers[0]}
    return without(flat, "layers_.*") | renamed(stacked, ("layers_0/", "layers/"))


@judges(BIG_VISION, "`scan_to_pyloop`, of what is scanned")
def _(flat):
    return flat


@judges(BIG_VISION, "`resample_posemb`", rounds=True)
def _(flat):
    grid = flat["positions"].reshape(4, 4, 4).astype("f8")
    larger = scipy.ndimage.zoom(grid, (1.5, 1.5, 1), order=1)
    return flat | {"positions": larger.reshape(1, 36, 4).astype("f4")}


@judges(BIG_VISION, "`resample_patchemb`", rounds=True)
def _(flat):
    """The kernel that gives of enlarged patches what the old one gave: by the inverse of what enlarges them."""
    pixels = np.eye(4, dtype="f4").reshape(4, 2, 2)
    enlarging = jax.image.resize(pixels, (4, 4, 4), "bilinear").reshape(4, 16)
    kernel = np.linalg.pinv(np.float64(enlarging)) @ flat["patch/kernel"].reshape(4, 4)
    return flat | {"patch/kernel": kernel.reshape(4, 4, 1, 4).astype("f4")}


@judges(BIG_VISION, "`head_zeroinit`")
def _(flat):
    return changed(flat, "head/.*", np.zeros_like)


# mergekit: a passthrough takes layers as they are, and may scale them

MERGEKIT = "mergekit passthrough"


def layers_of(*slices):
    """The layers of slices `(model, first, end)`, one behind the other, under new numbers."""
    chosen = [(model, n) for model, first, end in slices for n in range(first, end)]
    return {
        path.replace(f"layers_{old}/", f"layers_{new}/"): leaf
        for new, (model, old) in enumerate(chosen)
        for path, leaf in model.items()
        if path.startswith(f"layers_{old}/")
    }


@judges(MERGEKIT, "`layer_range: [0, 3]`, then `[1, 3]` of the same model")
def _(flat):
    return without(flat, "layers.*") | layers_of((flat, 0, 3), (flat, 1, 3))


@judges(MERGEKIT, "`layer_range: [0, 1]`, then `[1, 3]` of another")
def _(flat):
    return without(flat, "layers.*") | layers_of((flat, 0, 1), (OTHER, 1, 3))


@judges(MERGEKIT, "parameter `scale`")
def _(flat):
    return changed(flat, "layers_./value/kernel", lambda x: x * np.float32(0.5))


# mergekit: merges, one tensor after the other

MERGES = "mergekit, merges"


def met(flat, formula, *others, under=""):
    """The leaves below a place, made of themselves and their like in float64."""
    return {
        path: formula(*(np.float64(model[path]) for model in (flat, *others))).astype("f4")
        if path.startswith(under)
        else leaf
        for path, leaf in flat.items()
    }


def arc(a, b, t, most=0.9995):
    norms = np.linalg.norm(a) * np.linalg.norm(b)
    cosine = np.vdot(a, b) / norms if norms else 1.0
    if abs(cosine) > most:
        return (1 - t) * a + t * b
    angle = np.arccos(cosine)
    return (np.sin((1 - t) * angle) * a + np.sin(t * angle) * b) / np.sin(angle)


def trimmed(delta, first, last):
    """What is left of a difference: from one rank by size to another."""
    order = np.argsort(-abs(delta.reshape(-1)), kind="stable")[first:last]
    left = np.zeros(delta.size)
    left[order] = delta.reshape(-1)[order]
    return left.reshape(delta.shape)


@judges(MERGES, "`linear`", rounds=True)
def _(flat):
    return met(flat, lambda a, b: 0.75 * a + 0.25 * b, OTHER)


@judges(MERGES, "`slerp`, `t: 0.3`", rounds=True)
def _(flat):
    return met(flat, lambda a, b: arc(a, b, 0.3), OTHER)


@judges(MERGES, "`t: [0, 1]` over the layers", rounds=True)
def _(flat):
    for n in range(3):
        t = n / 2
        flat = met(flat, lambda a, b, t=t: (1 - t) * a + t * b, OTHER, under=f"layers_{n}")
    return flat


@judges(MERGES, "`nuslerp` with a base model", rounds=True)
def _(flat):
    def merged(a, b, base):
        return base + arc(a - base, b - base, 0.25, 1 - 1e-12)

    return met(flat, merged, OTHER, FRESH, under="layers_0")


@judges(MERGES, "`task_arithmetic`", rounds=True)
def _(flat):
    return met(flat, lambda base, tune: base + 0.4 * (tune - base), OTHER)


@judges(MERGES, "`ties`", rounds=True)
def _(flat):
    def merged(base, *tunes):
        left = np.stack([trimmed(tune - base, 0, base.size // 2) for tune in tunes])
        agrees = np.sign(left) == np.where(left.sum(0) >= 0, 1, -1)
        return base + (left * agrees).sum(0) / np.maximum(agrees.sum(0), 1)

    return met(flat, merged, OTHER, FRESH, under="layers_0")


@judges(MERGES, "`breadcrumbs`", rounds=True)
def _(flat):
    def merged(base, tune):
        top = base.size // 4
        return base + trimmed(tune - base, top, top + base.size // 2)

    return met(flat, merged, OTHER, under="layers_0")


@judges(MERGES, "`dare_linear` without drops", rounds=True)
def _(flat):
    return met(flat, lambda base, tune: base + 0.5 * (tune - base), OTHER)


@judges(MERGES, "`model_stock`", rounds=True)
def _(flat):
    def merged(base, one, other):
        norms = np.linalg.norm(one - base) * np.linalg.norm(other - base)
        cosine = np.vdot(one - base, other - base) / norms
        ratio = max(2 * cosine / (1 + cosine), 0)
        return ratio * (one + other) / 2 + (1 - ratio) * base

    return met(flat, merged, OTHER, FRESH, under="layers_0")


@judges(MERGES, "`karcher` of two", rounds=True)
def _(flat):
    def merged(a, b):
        norms = [np.linalg.norm(leaf) for leaf in (a, b)]
        return arc(a / norms[0], b / norms[1], 0.5, 1 - 1e-12) * sum(norms) / 2

    return met(flat, merged, OTHER, under="layers_0")


# BrainSurgery: one tensor after the other

BRAIN = "BrainSurgery"


@judges(BRAIN, "`copy`")
def _(flat):
    return flat | {"output/embedding": flat["embed/embedding"]}


@judges(BRAIN, "`move`")
def _(flat):
    return renamed(flat, ("^embed/", "tokens/"))


@judges(BRAIN, "`delete`")
def _(flat):
    return without(flat, "embed/.*")


@judges(BRAIN, "`assign` from another model")
def _(flat):
    return flat | {path: OTHER[path] for path in flat if path.startswith("layers_0/")}


@judges(BRAIN, "`add_`")
def _(flat):
    return flat | {path: flat[path] + OTHER[path] for path in ("head/kernel", "head/bias")}


@judges(BRAIN, "`subtract_`")
def _(flat):
    return flat | {path: flat[path] - OTHER[path] for path in ("head/kernel", "head/bias")}


@judges(BRAIN, "`scale_`")
def _(flat):
    return changed(flat, ".*/kernel", lambda x: x * np.float32(3))


@judges(BRAIN, "`add`, to a new tensor")
def _(flat):
    names = ("kernel", "bias")
    return flat | {f"sum/{name}": flat[f"head/{name}"] + OTHER[f"head/{name}"] for name in names}


@judges(BRAIN, "`cast_`")
def _(flat):
    return changed(flat, ".*", lambda x: x.astype(ml_dtypes.bfloat16))


@judges(BRAIN, "`split`, then `delete`")
def _(flat):
    low, high = np.split(flat["head/kernel"], [2], axis=1)
    return without(flat, "head/kernel") | {"low/kernel": low, "high/kernel": high}


@judges(BRAIN, "`concat`, then `delete`")
def _(flat):
    parts = [flat.pop("layers_0/query/kernel"), flat.pop("head/kernel")]
    return flat | {"wide/kernel": np.concatenate(parts, axis=1)}


@judges(BRAIN, "`clamp_`")
def _(flat):
    return changed(flat, ".*/kernel", lambda x: x.clip(-0.5, 0.5))


@judges(BRAIN, "`reshape_`")
def _(flat):
    return changed(flat, "embed/.*", lambda x: x.reshape(12, 2, 2))


@judges(BRAIN, "`permute`")
def _(flat):
    return changed(flat, "layers_./.*/kernel", np.transpose)


@judges(BRAIN, "`multiply`, by an array")
def _(flat):
    return flat | {"head/kernel": flat["head/kernel"] * ARRAY}


@judges(BRAIN, "`load` of one tensor")
def _(flat):
    return flat | {"head/kernel": ARRAY}


@judges(BRAIN, "`fill_` with a constant")
def _(flat):
    return changed(flat, ".*/bias", lambda x: np.full_like(x, 0.5))


@judges(BRAIN, "`zeroes`")
def _(flat):
    return flat | {"extra/kernel": np.zeros((4, 2), "f4")}


@judges(BRAIN, "`ones`")
def _(flat):
    return flat | {"extra/scale": np.ones(4, ml_dtypes.bfloat16)}


@judges(BRAIN, "`rand`")
def _(flat, found):
    drawn = found["extra/kernel"]
    assert abs(drawn.mean()) < 2e-3
    assert abs(drawn.std() - 0.02) < 2e-3
    return flat | {"extra/kernel": drawn}


@judges(BRAIN, "`phlora_`", rounds=True)
def _(flat):
    def rank_two(x):
        values, vectors = np.linalg.eigh(np.float64(x).T @ x)
        best = vectors[:, np.argsort(values)[-2:]]
        return (x @ best @ best.T).astype("f4")

    return changed(flat, "layers_./.*/kernel", rank_two)


ASSERTS = ("count", "shape", "dimensions", "dtype", "exists`, and `not", "equal", "iszero")
for name in ASSERTS:
    judges(BRAIN, f"`assert: {name}`")(lambda flat: flat)
