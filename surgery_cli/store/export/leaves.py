"""The draft of a result that is written in a format of other programs: what its leaves are called there, and are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from surgery_cli.draft.expression import Made
from surgery_cli.draft.kernels.rechunk import Rechunk
from surgery_cli.draft.recipe import Draft, DraftItems, Output
from surgery_cli.errors import PlanError, Problem, raise_all
from surgery_cli.optimizer.detect.params_root import is_optimizer_name
from surgery_cli.settings.export import Export
from surgery_cli.store.export.contract import OutputFormat
from surgery_cli.tree.dtypes import COMPLEX_PARTS, FLOATS, INTEGER_BITS, integer_range, item_bytes
from surgery_cli.tree.paths import LeafPath
from surgery_cli.tree.specs import LeafKind, LeafSpec
from surgery_cli.words.lists import quoted
from surgery_cli.words.notes import Consequence, Note, Remark
from surgery_cli.words.pages import DocsPage
from surgery_cli.words.quantities import counted, leaves_text
from surgery_cli.words.series import folded

_MOST_NAMED: Final = 4

_EMPTY_STATE: Final = LeafSpec(kind=LeafKind.EMPTY, empty="NamedTuple")

_KINDS: Final = {LeafKind.STRING: "texts", LeafKind.KEY: "typed random keys"}


class _Placed(NamedTuple):
    """A leaf of the result: where it stands in the draft, and as what."""

    path: LeafPath
    spec: LeafSpec


def exported(draft: Draft, form: OutputFormat, request: Export) -> Draft:
    """The draft of what is written in a format, every leaf at the path at which it is read from there.

    Of the optimizer state nothing is known in there.

    Raises:
        PlanError: all leaves that the format has no place for.
    """
    placed: dict[LeafPath, list[_Placed]] = {}
    unfit: dict[str, list[LeafPath]] = {}
    empty: list[LeafPath] = []
    apart: list[LeafPath] = []
    states = _empty_states(draft)
    for path, leaf in draft.leaves.items():
        if form.is_apart(form.place(path)):
            apart.append(path)
            continue
        try:
            spec = form.held(_EMPTY_STATE if path in states else leaf.spec)
        except KeyError:
            unfit.setdefault(_KINDS[leaf.spec.kind], []).append(path)
            continue
        if spec is None:
            empty.append(path)
        elif spec.has_array and spec.dtype not in form.dtypes:
            unfit.setdefault(spec.dtype, []).append(path)
        else:
            placed.setdefault(form.place(path), []).append(_Placed(path, spec))
    raise_all([*_unfit(form, unfit), *_misnamed(form, placed)])
    if not placed:
        raise PlanError(
            "no leaf would be left",
            why=_nothing(form, empty, apart),
            fix="keep some; a file without arrays is of no use",
        )
    leaves = {place: _held(draft.leaves[one.path], one, place) for place, (one,) in placed.items()}
    form.check_leaves(leaves, request)
    notes = _notes(form, draft, [one.path for (one,) in placed.values()], empty)
    if apart:
        notes = [*notes, _apart_note(form, apart)]
    if states and not empty:
        notes = [*notes, _empty_state_note(states)]
    return draft.replaced(
        leaves=leaves, slots={}, clocks={}, running={}, items=DraftItems()
    ).noting(*notes)


def _nothing(form: OutputFormat, empty: list[LeafPath], apart: list[LeafPath]) -> str:
    """Why there is no leaf to be written."""
    if apart:
        named = quoted(folded(map(str, apart)), _MOST_NAMED)
        return f"none is a part of {form.name}: {named}"
    if empty:
        return f"{form.name} has no place for what has no values: {leaves_text(len(empty))}"
    return "the checkpoint has none"


def _apart_note(form: OutputFormat, apart: list[LeafPath]) -> Consequence:
    named = quoted(folded(map(str, apart)), _MOST_NAMED)
    stays = counted(len(apart), "leaf stays", "leaves stay")
    return Consequence(DocsPage.EXPORT, f"{stays} behind, no part of {form.name}: {named}")


def _empty_states(draft: Draft) -> list[LeafPath]:
    """The nodes that Orbax stores as None and that are a state of optax without fields, or stand for a masked param.

    In the optimizer's state that is every None, but for those whose param is None itself.
    """
    none = [path for path, leaf in draft.leaves.items() if leaf.spec.empty == "None"]
    inside = [path for path in none if any(map(is_optimizer_name, path))]
    params = {path[depth:] for path in set(none).difference(inside) for depth in range(len(path))}
    return [
        path
        for path in inside
        if isinstance(path[-1], int) or not any(path[n:] in params for n in range(1, len(path)))
    ]


def _empty_state_note(states: list[LeafPath]) -> Consequence:
    named = quoted(map(str, states), _MOST_NAMED)
    return Consequence(
        DocsPage.EXPORT_MSGPACK,
        f"{counted(len(states), 'node')} of the optimizer's state, stored as None, are taken for states without fields,"
        f" such as optax's EmptyState: {named}",
    )


def _held(leaf: Output, one: _Placed, place: LeafPath) -> Output:
    """The same values as the format holds them: an array in C order, whatever its chunks were."""
    if not one.spec.has_array:
        return leaf.with_spec(one.spec)
    made = Made(Rechunk(), (leaf.recipe,), one.spec, place)
    return Output(made, leaf.home, leaf.policy, leaf.edits, leaf.others)


def _unfit(form: OutputFormat, unfit: Mapping[str, list[LeafPath]]) -> Iterable[Problem]:
    """A problem for every dtype and kind that the format does not have, with all leaves of it."""
    for what, paths in unfit.items():
        named = folded(map(str, paths))
        yield Problem(
            f"{form.name} has no place for {what}: {leaves_text(len(paths))}",
            why=quoted(named),
            fix=_mend(form, what, [*map(str, paths)]),
            path=str(paths[0]),
            field="output",
        )


def _mend(form: OutputFormat, what: str, paths: list[str]) -> str:
    if what in _KINDS.values():
        return "leave them out: `delete` them first, or name what is to be written"
    wider = wider_dtype(what, form.dtypes)
    if wider is None:
        return f"no dtype of {form.name} holds all values of {what}: `cast` or `delete` them first"
    at = paths[0] if len(paths) == 1 else f'"**", where_dtype: {what}'
    return f"cast them first, which keeps every value: `{{op: cast, at: {at}, to: {wider}}}`"


def _misnamed(
    form: OutputFormat,
    placed: Mapping[LeafPath, list[_Placed]],
) -> Iterable[Problem]:
    """A problem for every name that two leaves would have, or that the format has no place for."""
    for place, those in placed.items():
        paths = [str(one.path) for one in those]
        fault = form.name_fault(place)
        if len(those) > 1:
            yield Problem(
                f"'{place}' would be the name of {len(those)} leaves in {form.name}",
                why=f"{quoted(paths)} are called alike there",
                fix="rename one of them first",
                path=paths[0],
                field="output",
            )
        elif fault or not place.text:
            yield Problem(
                f"'{paths[0]}' cannot be stored in {form.name}",
                why=fault or "it has no name: the tree is a bare leaf",
                fix="rename it first",
                path=paths[0],
                field="output",
            )


def _notes(
    form: OutputFormat, draft: Draft, written: list[LeafPath], empty: list[LeafPath]
) -> Iterable[Note]:
    """What a reader of the result should know that was not asked for."""
    long = next((path for path in written if len(path) > 1), None)
    place = () if long is None else form.place(long)
    if long is not None and len(place) == 1 and str(place[0]) != draft.texts[long]:
        yield Remark(
            DocsPage.EXPORT_SAFETENSORS,
            f"names are keys joined: '{long}' is called '{place[0]}'",
        )
    if empty:
        named = quoted((str(path) or "the root" for path in empty), _MOST_NAMED)
        stays = counted(len(empty), "node without values stays", "nodes without values stay")
        yield Consequence(
            DocsPage.EXPORT, f"{stays} behind, for which {form.name} has no place: {named}"
        )
    slots = {slot.path for slot in draft.slots.values() if slot.in_optimizer}
    twins = [path for path in written if path in slots]
    if twins:
        yield Consequence(
            DocsPage.EXPORT,
            f"optimizer state is written as well: {len(twins):,} of {leaves_text(len(written))}, such as"
            f" '{twins[0]}'; readers of models want params alone (`export SRC DST params …`, or `keep` in"
            " a plan)",
        )


def wider_dtype(dtype: str, known: Iterable[str]) -> str | None:
    """The narrowest of the ``known`` dtypes that holds every value of another one.

    >>> wider_dtype("int4", ["int8", "int16"]), wider_dtype("bfloat16", ["float16", "float32", "float64"])
    ('int8', 'float32')
    >>> wider_dtype("complex128", ["complex64", "float64"]) is None
    True
    """
    holding = [one for one in known if _holds(one, dtype)]
    return min(holding, key=lambda one: (item_bytes(one), one), default=None)


def _holds(wider: str, dtype: str) -> bool:
    if dtype in INTEGER_BITS and wider in INTEGER_BITS:
        (low, high), (least, most) = integer_range(dtype), integer_range(wider)
        return least <= low and high <= most
    if dtype in COMPLEX_PARTS and wider in COMPLEX_PARTS:
        return _holds(COMPLEX_PARTS[wider], COMPLEX_PARTS[dtype])
    if dtype in FLOATS and wider in FLOATS:
        one, other = FLOATS[wider], FLOATS[dtype]
        return (
            one.fraction_bits >= other.fraction_bits
            and one.least <= other.least
            and one.largest >= other.largest
            and (one.has_infinities or not other.has_infinities)
        )
    return False
