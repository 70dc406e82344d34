"""A probe before a tensor is read: a checkpoint, a model bound to it, and the call that is traced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from surgery_cli.errors import CheckpointError, Problem, SurgeryError
from surgery_cli.probing.interface.settings import ProbeOptions
from surgery_cli.probing.model.binding import PARAMS, Binding, bind
from surgery_cli.probing.model.calls import Call, Collections, Model, Slot, explained
from surgery_cli.probing.model.calls import Path as VariablePath
from surgery_cli.probing.model.inputs import Input, read_inputs
from surgery_cli.probing.model.misfits import Misfit
from surgery_cli.probing.model.models import Trace, make_model, trace
from surgery_cli.probing.model.nnx_model import NnxModel
from surgery_cli.probing.trace.forward import Site, sites_of, used_slots
from surgery_cli.probing.trace.traces import (
    cannot_stop_at,
    of_one,
    over_members,
    stacked,
    stopped_at,
)
from surgery_cli.probing.use_case.filters import is_at
from surgery_cli.proof.records import checked
from surgery_cli.salvage.opening import opened
from surgery_cli.script.user_code import UserObject
from surgery_cli.store.filesystem.memory_limits import room
from surgery_cli.store.open.checkpoint import Checkpoint
from surgery_cli.tree.nearness import suggested
from surgery_cli.tree.specs import LeafKind
from surgery_cli.words.lists import quoted
from surgery_cli.words.quantities import byte_text, leaves_text


class Session(msgspec.Struct, frozen=True):
    """A checkpoint with a model bound to it: everything that is known before a tensor is read.

    ``members`` counts the models of an ensemble; 0 for a model alone. ``until`` is the call after which the run stops.
    ``is_staged``: a result that has no record of its own yet.
    """

    checkpoint: Checkpoint
    user: UserObject
    model: Model
    call: Call
    inputs: list[Input]
    binding: Binding
    expected: Collections
    trace: Trace
    sites: list[Site]
    members: int = 0
    until: str = ""
    is_staged: bool = False

    def read(self) -> tuple[dict[Slot, Any], int]:
        """The variables that the computation needs, and the bytes that were read for them."""
        import jax
        import numpy as np

        needed = used_slots(self.trace)
        source = self.checkpoint if self.is_staged else checked(self.checkpoint)
        self._check_memory(needed)
        values: dict[Slot, Any] = {}
        read = 0
        missing: dict[str, dict[VariablePath, Any]] = {}
        for name, path in needed:
            leaf = self.binding.leaves.get((name, path))
            if leaf is None:
                missing.setdefault(name, {})[path] = None
                continue
            spec = self.checkpoint.tree[leaf]
            value = np.asarray(source.read(leaf))
            read += spec.bytes
            is_key = spec.kind is LeafKind.KEY
            values[name, path] = (
                jax.random.wrap_key_data(value, impl=spec.key_impl) if is_key else value
            )
        if missing:
            assert isinstance(self.model, NnxModel)
            made = self.model.made_by_factory(missing)
            for name, paths in made.items():
                for path, value in paths.items():
                    shape = self.expected[name][path].shape
                    # the members of an ensemble share random streams that the checkpoint does not have
                    values[name, path] = jax.numpy.broadcast_to(value, shape)
        return values, read

    def _check_memory(self, needed: Iterable[Slot]) -> None:
        """Refuse variables for which this process has no memory: a model runs on all of them at once."""
        bound = (self.binding.leaves.get(slot) for slot in needed)
        leaves = [leaf for leaf in bound if leaf is not None]
        total = sum(self.checkpoint.tree[leaf].bytes for leaf in leaves)
        there = room()
        if total > there.tried_bytes:
            raise CheckpointError(
                f"the {leaves_text(len(leaves))} that the model takes do not fit into memory",
                why=f"they have {byte_text(total)}, {byte_text(there.bytes)} {there.bound}",
                fix="run where there is more memory, or a part of the model (`--run`, `--until`)",
            )


def open_session(
    checkpoint: str | Checkpoint,
    user: UserObject,
    inputs: tuple[str, ...],
    options: ProbeOptions,
    *,
    like: Session | None = None,
    is_staged: bool = False,
) -> Session:
    """Make the model, bind it to the checkpoint and trace the call; from metadata and shapes alone.

    ``like`` is another session with these inputs and options: of the same model on variables of the same shapes, its
    trace is used again. A checkpoint that is open already may be one in its staging place (``is_staged``); ``step`` and
    ``item`` are then not looked at.

    Raises:
        Misfit: the model does not fit the checkpoint.
        SurgeryError: anything that the command got wrong, or the user's code raises.
    """
    found = (
        checkpoint
        if isinstance(checkpoint, Checkpoint)
        else opened(checkpoint, step=options.step, item=options.item)
    )
    given = read_inputs(inputs, seed=options.seed, shapes_only=options.shapes)
    made = model_of(user, given, options)
    with explained():
        expected = user.run(made.collections)
    named = dict(options.bind)
    if options.params is not None:
        holder = next((name for name in PARAMS if name in expected), "params")
        named[holder] = options.params
    _check_model_inputs(made, options)
    if options.ensemble:
        expected = stacked(expected, options.ensemble)
    try:
        is_part = bool(options.run) and not made.is_taken_apart
        binding = bind(found.tree, expected, named, is_part=is_part)
    except Misfit as misfit:
        if made.is_taken_apart and not options.model_inputs:
            raise Misfit.of([*misfit.problems, _whole_model(options.run)]) from None
        raise
    stored = binding.as_stored(expected, found.tree)
    if like is not None and like.user is user and like.expected == stored:
        return msgspec.structs.replace(like, checkpoint=found, binding=binding, is_staged=is_staged)
    traced = _traced(made, user, stored, options)
    return Session(
        found, user, made, made.call, given, binding, stored, traced, sites_of(traced),
        members=options.ensemble or 0, until=options.until, is_staged=is_staged,
    )  # fmt: skip


def model_of(user: UserObject, given: list[Input], options: ProbeOptions) -> Model:
    """The user's model with the call that the options say; nothing of it has run yet."""
    return make_model(
        user,
        given,
        static=options.call,
        run=options.run,
        model_inputs=read_inputs(options.model_inputs, seed=options.seed, shapes_only=True),
        methods=options.methods,
        vmap_axis=options.vmap_axis,
        seed=options.seed,
        streams=options.streams,
    )


def _traced(made: Model, user: UserObject, expected: Collections, options: ProbeOptions) -> Trace:
    """The call as it is to be run: up to a call, for every member of an ensemble."""
    one = of_one(expected) if options.ensemble else expected
    with explained():
        traced = trace(made, user, one, made.call)
    if options.model_b is None:  # else the other model may draw from it
        _check_streams(made.streams(used_slots(traced)), options)
    if options.until:
        traced = _stopped(traced, options.until)
    return over_members(traced, options.ensemble) if options.ensemble else traced


def _check_streams(drawn: set[str], options: ProbeOptions) -> None:
    unknown = next((name for name in options.streams if name not in drawn), None)
    if unknown is None:
        return
    seed = options.streams[unknown]
    raise SurgeryError(
        f"`--rng {unknown}={seed}` changes nothing: the model's call does not draw from '{unknown}'",
        why="it draws from " + (", ".join(f"'{n}'" for n in sorted(drawn)) or "no random stream"),
        fix=suggested(unknown, drawn, f"`--rng {{}}={seed}`")
        or "leave it out; if the model draws in training only: `--call train=true`",
        field="rng",
    )


def _check_model_inputs(made: Model, options: ProbeOptions) -> None:
    if options.model_inputs and not made.is_taken_apart:
        raise SurgeryError(
            f"`--run {options.run}` needs no `--model-input`",
            why="it is a method or an attribute of the model, which is reached without running the model",
            fix="leave it out",
            field="model_input",
        )


def _whole_model(run: str) -> Problem:
    return Problem(
        f"`--run {run}` is made inside a compact method, so the whole model was run on the shapes of `--input`",
        fix="if the model takes others, say them: `--model-input 'float32[8,28,28,1]'`",
    )


def _stopped(traced: Trace, text: str) -> Trace:
    """The trace up to the outputs of a call, the first one of that name; ``PATH:in`` stops before it, at its inputs."""
    place, _, inward = text.partition(":")
    role = "in" if inward == "in" else "out"
    sites = [s for s in sites_of(traced) if s.label.role == role]
    found = next((s for s in sites if is_at(place, s)), None)
    if found is None:
        names = list(dict.fromkeys(s.label.text for s in sites))
        raise SurgeryError(
            f"no call '{place}' to stop at",
            why="there are " + quoted(names, 12),
            fix=suggested(place, names, "`--until {}`"),
            field="until",
        )
    around = cannot_stop_at(found.point)
    if around:
        raise SurgeryError(
            f"`--until {place}`: the call stands inside {around}",
            fix=f"see its values with `--at {place}`, or stop at a call outside",
            field="until",
        )
    mine = (found.label.path, found.label.method, found.call)
    same = [s.point for s in sites if (s.label.path, s.label.method, s.call) == mine]
    return stopped_at(traced, same)
