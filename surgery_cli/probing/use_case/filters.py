"""Which calls of a model are shown: what `--at`, `--only`, `--calls` and `--until` name."""

from __future__ import annotations

from collections.abc import Callable

from surgery_cli.errors import SurgeryError
from surgery_cli.probing.interface.settings import ProbeOptions
from surgery_cli.probing.trace.forward import Site
from surgery_cli.tree.nearness import suggested
from surgery_cli.tree.paths import LeafPath, PathPattern
from surgery_cli.words.lists import quoted


def chosen_sites(
    sites: list[Site], options: ProbeOptions, other: list[Site] | None = None
) -> list[Site]:
    """The outputs, sown and perturbed values that the filters name; without filters, those of ``__call__``.

    ``other`` are the sites of a model with which this one is compared: a filter may name something of that one alone.

    Raises:
        SurgeryError: a filter names nothing, or together they leave nothing.
    """
    _check_filters([*sites, *(other or ())], options)
    entering = set(_entering(sites, options.until))
    shown = [s for s in sites if s.label.role != "in" or s in entering]
    methods = options.methods or ("__call__", options.run.replace("/", ".").rpartition(".")[2])
    found = shown
    if not options.methods:
        found = [s for s in found if s.label.role != "out" or s.label.method in methods]
    else:
        found = [
            s
            for s in found
            if "*" in methods
            or s in entering
            or (s.label.role == "out" and s.label.method in methods)
        ]
        if not found:
            there = [s.label.method for s in shown if s.label.role == "out"]
            raise _nothing("calls", " ".join(methods), there)
    if options.only:
        found = [s for s in found if s.label.kind in options.only]
        if not found:
            raise _nothing("only", " ".join(options.only), [s.label.kind for s in shown])
    if options.at:
        patterns = [PathPattern(text) for text in options.at]
        found = [s for s in found if any(_names(p, s) for p in patterns)]
        if not found:
            raise _nothing("at", " ".join(options.at), [s.label.text for s in shown])
    return found


def _check_filters(sites: list[Site], options: ProbeOptions) -> None:
    """Refuse a filter that names nothing, whatever the others name."""
    shown = [s for s in sites if s.label.role != "in"]
    methods = {s.label.method for s in shown if s.label.role == "out"} | {"*"}
    kinds = {s.label.kind for s in shown}

    def is_shown(text: str) -> bool:
        return any(_names(PathPattern(text), site) for site in shown)

    there: list[tuple[str, tuple[str, ...], Callable[[str], bool], list[str]]] = [
        ("calls", options.methods, methods.__contains__, [s.label.method for s in shown]),
        ("only", options.only, kinds.__contains__, [s.label.kind for s in shown]),
        ("at", options.at, is_shown, [s.label.text for s in shown]),
    ]
    for field, wanted, is_there, names in there:
        nothing = next((text for text in wanted if not is_there(text)), None)
        if nothing is not None:
            raise _nothing(field, nothing, names, suggested(nothing, names, f"`--{field} {{}}`"))


def _nothing(field: str, wanted: str, there: list[str], fix: str = "") -> SurgeryError:
    """The error of a filter that leaves nothing; ``there`` is what it could name."""
    names = list(dict.fromkeys(there))
    return SurgeryError(
        f"`--{field} {wanted}` leaves no call to show",
        why="there are " + quoted(names, 12),
        fix=fix,
        field=field,
    )


def _names(pattern: PathPattern, site: Site) -> bool:
    if pattern.text in (site.name, site.label.text):
        return True  # as it is printed, with the part of an output: `blocks[0]`
    keys = LeafPath(site.label.path.split("/") if site.label.path else ())
    if site.label.role != "out":
        keys = keys / (site.label.method,)
    return pattern.match(keys) is not None if keys else pattern.text in (".", "**")


def _entering(sites: list[Site], until: str) -> list[Site]:
    """What enters the call before which the run stops; nothing of a run that goes on."""
    place, _, inward = until.partition(":")
    found = [s for s in sites if inward == "in" and s.label.role == "in" and is_at(place, s)]
    return [s for s in found if s.call == found[0].call]


def is_at(place: str, site: Site) -> bool:
    """True if ``place``, as it is typed, is the site's."""
    return place in (site.name, site.label.text, site.label.path)
