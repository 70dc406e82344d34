"""Write docs/optimizers.md from the tests' registry of policies: `python docs/make_optimizers.py`."""

import sys
from pathlib import Path

import msgspec
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from surgery_cli.draft.effect import Rearranges  # noqa: E402 - found from the root above
from surgery_cli.operations.base import ValueOperation  # noqa: E402
from surgery_cli.operations.table import operations  # noqa: E402
from surgery_cli.optimizer.follow.answers import default_policy  # noqa: E402
from tests.optimizer.policy_registry import CASES, NOT_TRIED, Case  # noqa: E402

PAGE = Path(__file__).with_name("optimizers.md")

ABOVE = """\
# Optimizers and policies

An optimizer keeps copies of the params: moments, sums of squares, slow weights. When an edit changes params, these
twins follow by a policy, `optimizer:` of an edit, of a plan, or `--optimizer`:

| policy | what becomes of a twin |
|---|---|
| `keep` | It stays as it is, to the last bit. |
| `transform` | It becomes what it would be, had the optimizer seen the edited params from its first step. |
| `reset` | It gets the optimizer's own initial value: mostly 0; asked for where a setting decides it. |
| `warm` | First moments start at 0. Second moments stay; under new values they become the mean of the leaf. |

If p' = c·p and the function stays the same, the gradient is g/c, and `transform` multiplies a slot by |c|^k, first
moments by the sign of c as well. The power k follows from the place of the slot in the chain: -1 for Adam's `mu`, -2
for its `nu`, 0 for momentum behind a normalising transform, +1 behind a trust ratio.

Copies of the params (`z` of schedule-free, slow weights, `x0`) take part in every edit, or the optimizer would undo it;
a `reset` makes them the params. Edits of places and shapes are always carried.

Without a policy:

| edit | twins |
|---|---|
@DEFAULTS@

`interpolate` goes by `warm` where it is a mean (straight, `t` from 0 to 1); elsewhere, as for other merges, slots stay.

`prune` and `mask` set elements to 0. Under `transform` and `warm`, first moments get their initial value there, and
second moments stay: the next steps are no larger than usual. A `reset` restarts both there alone. `keep` leaves what
was gathered, which moves these zeros in the next steps; the preview says so. `clip` to a norm is a factor, to a range
it is none: slots stay, as they do for what adds (`noise`, `shrink-and-perturb`, `add-scaled`, `map`).

Where elements move, slots of the shape of their param get the same map, stacked ones on every part; one number a leaf
stays, and where leaves become one, or parts of one, it is refused unless it is `reset`. Leaves of which the optimizer
keeps slots become none with leaves that it leaves out. New places (`pad`, `resize`) hold 0 in first moments; in second
moments, and in slots of which nothing is known, the mean along the axis. Adafactor's rows and columns move as they are
where the map keeps both of their axes; else the moment is rebuilt from them, moved, and taken apart again, which is
exact for what reorders, and a model of what cuts. Whether a param of the new shape is factored is read from the other
params of the state, not from a call or script; where none shows it, optax's 128 is taken, and the preview says so.
`keep` does the same as `transform`, `reset` and `warm` start slots in the new shape. SM3's vectors move with their
axes, and are refused where axes are merged, split or new. Copies beside the optimizer state move along.

Where places are interpolated (`interpolate-positions`), second moments are so by linear weights, whatever those of the
params: cubic ones would make them negative. First moments restart, and follow by the weights of their params under
`transform`. `keep` is refused, as slots must have the new shape.

Under `average`, `transform` gives every slot of a param the same mean over the members, where all of them know its kind
and have counted the same steps (as for `replace`, below); else it is refused. Of momentum, and of all that is linear in
the gradients, that is what their mean would have left. Second moments become the mean of the members': the mean of all
squared gradients, with the spread between members in it, which training on the mean alone would not have seen. Memories
of past steps (L-BFGS) have no mean. Without a word, first moments restart and second moments stay.

A power k that is not sure is said in the preview, and an explicit `transform` of such slots is refused: a wrong power
is worse than none. Optimizers without second moments have nothing to warm: their slots restart. `replace` from a
checkpoint takes the twins there with the params, where it has all of them, of the same kind, and under a clock that
agrees: the next steps must be those that the donor itself would take, within a tenth. That holds for step counts within
a tenth of each other whatever the settings, and for counts from about 3,500 on for decays of up to 0.999; the preview
names the decay. A decay that one side alone has on disk (`inject_hyperparams`), and that is not optax's default, is
named in the preview, with what that default would make of the next steps; where a call or script was tried out that has
another, the slots restart. Params of the very same checkpoint (`--from` another layer) need no kind to be known: their
slots are of one state. What the plan says (`slots:`, `optimizer_kind:`) is said of the checkpoint that is edited, under
any of its names; another one says it in its own record, and the preview has the plan for that. Of a state of no known
form, a number beside it that may be its count must agree, too. Else the twins restart and the preview says why; an
explicit `transform` is refused. `replace` that names the count as well (`params` and `opt_state/0/count`) takes both.
`reset-optimizer` takes no policy.

A state is of the params whose names and shapes it has. Where several have them (an average, a target, a network just
like the first), it is of those in the nearest train state, then of those whose name it has (`critic_opt_state`,
`opt_state/critic`), then of `params` (of those in a node of another name, as `teacher/params`, only if the state
stands in there, too). That an average has nothing else, and a model statistics beside its weights, tells nothing.
Where nothing does, or where only an average fits as the params were changed alone, edits of them are refused with what
to add. `inspect --optimizer` shows for each slot the param that it is of; where a policy is asked for and nothing
follows, the preview says so.

Under edits of values, copies beside the optimizer state (an EMA of the params, a target network) stay unless named;
the preview says which; edits of shapes and names take them along. A copy of a part of the params is one if each of
its leaves has the very keys and shape of its original, from the root of the params (`ema/embed/embedding`), or if it
is just like one network in them, and no other. An average of a single layer without the keys above it
(`ema_head/kernel`), under keys of its own (one string a leaf) or as a list is nobody's: edit it by name. With `--item`,
what stands in other items stays as it is. Named with the params, a `reinit` draws other values for them, as every path
has its own. For
equal ones, in the same plan after the `reinit` of the params: `delete` the copy, and `copy` the params to its place.

Metadata do not tell such a copy from a moment that a script's own optimizer keeps outside of `opt_state` (`m` and `v`
beside `params`). A name does whose words all say params, an average or a target (`ema`, `target_params`,
`teacher/params`). Any other tree like the params is taken for a copy, and goes where they go; where an edit would put
values into it that were not there (`pad`, `resize`, `interpolate-positions`, `add`, `reinit` to another shape), it is
refused: squares would become negative, and the next step NaN. So is an edit whose one pattern names params and such a
tree (`**/kernel`), like one that names params and their slots: name the params alone, or the tree by a pattern of its
own; means over checkpoints, and what comes from one of them, are right for either. `slots:` says what it is: moments
(`power`, `fresh`), which then follow as those in `opt_state`, a copy (`copy: true`), or nothing of the kind (`ignore:
true`).

Behind a trust ratio, the scale of a param or another norm of a whole leaf (LARS, Adafactor's momentum, NovoGrad), a
power holds for one factor of the leaf. Arrays of factors, and `normalize` along an `axis`, keep such slots with a note.
Some powers hold only where an epsilon is small beside the gradients, or an estimate for all params stays what it is
(Prodigy, DoG): the preview names that as assumed.

The commonest unsure state is `optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule))`: what stands before
Adam has no state, so that on disk a clip looks like a trust ratio or a sign. Four things settle it:

- `--optimizer-kind adamw`, or `optimizer_kind: adamw` in a plan: the optax factory that made the state, said to stand
  as if nothing came before it. That is right behind a clip which mostly rests, and wrong behind a normalising
  transform: where something may stand before it, the preview names that as assumed.
  `--optimizer-kind opt_state/1=adamw` says it of one node; the deepest node has the say. Without a node, the preview
  and the record name the states that it was used for.
- `--optimizer-kind 'chain(clip_by_global_norm(1.0), adamw(1e-3, b2=0.95))'`, likewise in a plan: the call of optax as
  it stands in the script. It is tried out as the script's own optimizer is, so that powers, starts and decays are
  those of its settings, and clips are named where they act. It must make the state that is there, or the run ends
  with both sides. Arguments are numbers, texts, lists, dicts and further calls of optax and `optax.contrib`
  (`MultiSteps(adam(1e-3), 4)`, `inject_hyperparams(adamw)(1e-3)`, `cosine_decay_schedule(1e-3, 1000)`); nothing else
  is read, and no code is evaluated.
- `--like-init FILE.py:FUNCTION`: the training script's own optimizer is tried out on tiny params. The function returns
  a `TrainState`, an `nnx.Optimizer`, or a dict with `tx` in it; an `nnx.state(...)` does not hold the optimizer.
- `slots:` in a plan, for states that no optax factory made, wherever they stand, and for accumulators behind one, as in
  `chain(adam(...), ema(0.9))`, where `{opt_state/1/ema: {power: 0}}` is right unless a trust ratio stands between. Each
  tree of slots by its path or a pattern, with its power, e.g.
  `{opt_state/1/0/mu: {power: -1}, opt_state/1/0/nu: {power: -2, even: true}}`. The slots of one state are said together
  or not at all, and so are trees like the params that stand beside each other outside of `opt_state` (`m` and `v`),
  but for those whose names say that they are copies. What is said is followed, or refused where it cannot be: of a
  part of a tree that is known as a whole.

A field of `slots:` is the node that mirrors the params, and says of it:

- `of`: the node of the params that it mirrors leaf by leaf, where several fit or none does by name:
  `{opt_state/0/mu: {of: params, power: -1}}`. The keys below both must agree. Where params were renamed without their
  moments, rename the moments too, in a run before; or `ignore` them in the plan that gives the params their old names.
- `power`: the k above: how the slot goes with the size of its param. -1 holds gradients (a first moment), -2 their
  squares (a second moment, with `even: true` and `second_moment: true`, by which `warm` gives it its mean), 1 goes with
  the param itself, 0 keeps its size.
- `even`: whether it keeps its signs under a negative factor, as squares do (`true`), or they turn with it, as those of
  gradients do (`false`). Of an even power (-2, 0, 2) neither is taken for granted: a negative factor is refused until
  it is said (of an array of factors by its values, so that it is 1).
- `fresh`: its initial value, for a reset; `start`: what is left of that in it now, which no factor scales.
- `copy: true`: it is a copy of the params beside the optimizer state: it goes where they go, and keeps its values.
- `ignore: true`: it is no twin of any param; edits of params leave it alone.

In advice, `NAME`, `NODE`, `K`, `S` and `X` stand for what only you know; pasted as they are, they are refused. What a
word settled is kept in the record of the result (`slots` in `surgery.json`), and need not be said again in a later
run on it; whose a state is (`of`, `--params`) and what is ignored is asked again.

## What is taken for granted

Adam, NAdam, RAdam, AdaBelief and others share the powers of a state `{count, mu, nu}`; adopt, LaProp and adamax keep
the same names and shapes with other powers. Values can only rule kinds out, over all leaves of the state (at most 64
MiB of them are read, the smallest first): somewhere |mu| > 3·nu, which no adamax with b1 < b2 has, and no leaf whose
mu reaches 0.02 in the root mean square, as those of adopt mostly do. Then the state is taken for Adam's family, and
the preview says so (`assumed:`), with what it would be wrong for; else its slots are kept. The record says it, too.

Adagrad's sums, the squares of rmsprop and the moments of Yogi start at a setting of the script, which is not on disk
and does not follow a factor: right is (slot - start)·|c|^k + start, with what is left of the start by now. Adagrad
never forgets it. `--like-init` knows the setting; a factory that is named (`--optimizer-kind adagrad`) stands for
optax's own default, and the preview says that this is assumed; a call of it says the setting. Without either, such
slots are kept, and an explicit `transform` or `reset` is refused. Where a start fades (rmsprop with an
`initial_scale`), `--like-init` measures by which factor, with gradients of zero, and the steps are read from the
state's `count`; the preview says what is left, and the record keeps it. It is not known, and the slots are kept with
the reason, where no count stands beside them (rmsprop without `bias_correction`), where the factor is scheduled or
injected, in dtypes below float32, and where an edit before gave slots other values under the same count; there,
`start:` says it. Of Yogi's start nothing can be known: its squares grow and shrink by steps that depend on it. Where
rounding of what is left would be multiplied into more than 1 % of the largest result, the edit is refused.

A script with another optimizer than the checkpoint's: [Changing the optimizer](changing-the-optimizer.md).

Until then, old moments under params times 0.1 make Adam's steps there up to 5.2 times too large; times 10, they leave
0.1 of a step for thousands of steps.

## Step counters

A counter such as Adam's `count` is shared by all its slots. It goes back to its start only if the same plan resets
every slot that it drives (`reset-optimizer` with `clocks: true`); setting it back alone would shrink every other step.
The other way round, slots with squares that restart under a large count make steps too large for a while: Adam's with
b1 = 0.9 and b2 = 0.999 reach 6.6 learning rates at step 12, and 32 at once where first moments go on. The preview reads
the count, and the decays where `inject_hyperparams` stores them, and announces the factor, also where an edit names
squares and makes them smaller, or sets the count to another number while they go on; `warm` avoids it, for an edit of
params. `surgery inspect --optimizer` lists all counters and stored learning rates with what they drive. A counter that
drives a schedule, and the step of a TrainState, may be set alone; a learning rate that a schedule gives may not, as the
next step would overwrite it. Where a donor gave one of these counters, and another has a count here that it does
not have there, the preview names both.

`reset-optimizer` without a pattern and with `clocks: true` is what the optimizer begins with, but for what no slot
needs: schedules go on (so does `gradient_step` of MultiSteps, which only drives the schedule of how many steps are
gathered), and numbers that came from the script's settings or were tuned by the optimizer stay (injected
hyperparameters, prodigy's `estim_lr`, mechanic's `s`, a plateau's factor); the preview names them. Running sums beside
the slots, such as schedule-free's `weight_sum`, restart with all slots of their state.

`slots:` says what slots hold, and not which counter is theirs. Of a state of no known form, `clocks: true` is refused
while an integer beside its slots may be one: `set` it to 0 by name, in the same plan, if it is. Where squares of such a
state restart, by any edit, and that integer goes on, the preview names it.

## Settings that the state keeps

`optax.inject_hyperparams` keeps the arguments of its factory in the state, and so a cast of everything takes them
along. What counts is the number that is written, in its dtype: 0.999 is 1 in bfloat16, and optax divides by 1 minus
its power, so that training stands still from there, or becomes NaN. Every edit (`cast`, `set`, `clip`, `average`, a
`replace` with `cast: true`, …) is refused that writes what the argument has no meaning for, or by whose rounding a
number becomes 0, or a share below 1 becomes 1: leave settings out (`except: opt_state/hyperparams`), or choose a
wider dtype. How far rounding moves the others, where that is more than float32 does itself, is said with both
numbers: weight_decay 0.05 is 0.05005 in bfloat16. Settings that a schedule gives are left to it. These few numbers
are read for the preview.

What was rounded is lost: a cast back leaves the 1, and is refused with what to do: `set` it in the same plan to what
the script gives. `inspect --optimizer`, `verify` and `doctor --read-data` say it of a checkpoint that stands so, and
`verify --like-init` shows no cast that would not help. A cast to a wider dtype names the settings that an earlier run
cast to a narrower one, as far as the record tells.

## What was tried

Every row is a real state that Orbax saved after a few training steps. Four groups of its params are multiplied by
-0.25, each under another policy, and the script's own target restores the result and trains on. `transform` is held
against an optimizer that was fed g/c from its first step: "exact" means equal to the last bit, a number is the largest
relative difference. `optimizer_kind` is what settles the powers; "-" where the checkpoint alone tells them.
The last column says why `transform` is not exact, and which slots besides first moments there are.

| optimizer | `optimizer_kind` | `keep` | `transform` | `reset` | `warm` | remarks |
|---|---|---|---|---|---|---|
"""

BELOW = """
The step itself is another matter than the slots. With exact slots the next update is scaled as the optimizer scales it
(Adam: not at all; momentum: 1/c; lamb, lars, adafactor: c), up to its epsilon: about 1e-6 of the update for Adam's
default, 1e-2 for yogi's and adadelta's, which are large. Decoupled weight decay is part of the update that scales with
the param: about 1e-4 at the defaults. No slot can keep Adam's step in function space, which becomes 1/c as large.
"""


WORDS = {
    "transform": "`transform`: of a factor where the power k is sure, else `keep`; of zeros see below",
    "keep": "`keep`: nothing tells how they follow, or the values stay what they were (`cast`)",
    "warm": "`warm`",
    "reset": "`reset`",
}


MOVED = "`transform`: their elements move with those of their params"


def page() -> str:
    """The page, as Markdown."""
    rows = [_row(name, case) for name, case in sorted(CASES.items())]
    rows += [f"| {name} | | | | | | {why} |" for name, why in sorted(NOT_TRIED.items())]
    return ABOVE.replace("@DEFAULTS@", _defaults()) + "\n".join(rows) + "\n" + BELOW


def _defaults() -> str:
    """A row for each default policy, with the edits of values that have it."""
    edits: dict[tuple[str, bool], list[str]] = {}
    for name, kind in operations().items():
        if issubclass(kind, ValueOperation):
            (edit,) = msgspec.convert(YAML(typ="safe").load(kind.example), list[kind])
            moves = isinstance(edit.effect, Rearranges)
            edits.setdefault((default_policy(edit.effect), moves), []).append(f"`{name}`")
    return "\n".join(
        f"| {', '.join(names)} | {MOVED if moves else WORDS[policy]} |"
        for (policy, moves), names in edits.items()
    )


def _row(name: str, case: Case) -> str:
    kind = f"`{case.kind}`" if case.kind else "-"
    cells = [
        name,
        kind,
        _cell(case, "keep", "kept"),
        _cell(case, "transform", _exactness(case)),
        _cell(case, "reset", "initial"),
        _cell(case, "warm", "warm" if case.squares else "initial"),
        _remarks(case),
    ]
    return f"| {' | '.join(cells)} |"


def _cell(case: Case, policy: str, done: str) -> str:
    return "refused" if policy in case.refused else done


def _exactness(case: Case) -> str:
    if case.error == 0:
        return "exact"
    if case.error == float("inf"):
        return "not comparable"
    return f"within {case.error:g}" if case.error < 0.5 else f"off by up to {case.error:g} times"


def _remarks(case: Case) -> str:
    parts = [case.why] if case.why else []
    parts += dict.fromkeys(f"refused: {why}" for why in case.refused.values())
    if case.squares:
        parts.append("squares: " + ", ".join(f"`{name}`" for name in case.squares))
    if case.follows:
        parts.append("copies of params: " + ", ".join(f"`{name}`" for name in case.follows))
    return "; ".join(parts).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
