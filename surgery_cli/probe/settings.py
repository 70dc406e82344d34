"""Settings of a probe as they are typed: `NAME=VALUE`, read without anything heavy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from surgery_cli.errors import SurgeryError
from surgery_cli.probe.call_specs import literal


def read_static(texts: Sequence[str]) -> dict[str, Any]:
    """``train=false`` as Python values; what is no literal is a string.

    >>> read_static(["train=false", "mode=fast"])
    {'train': False, 'mode': 'fast'}

    Raises:
        SurgeryError: a text has no ``=``, or a name stands twice.
    """
    return {
        name: _value(text) for name, text in _named(texts, "--call", "NAME=VALUE", "train=false")
    }


def read_streams(texts: Sequence[str]) -> dict[str, int]:
    """``dropout=1`` as the seeds of random streams by name.

    Raises:
        SurgeryError: a text is not NAME=SEED, or a name stands twice.
    """
    found = {}
    for name, seed in _named(texts, "--rng", "NAME=SEED", "dropout=0"):
        if not seed.isdecimal():
            raise _refusal(f"{name}={seed}", "--rng", "NAME=SEED", "dropout=0")
        found[name] = int(seed)
    return found


def read_bindings(texts: Sequence[str]) -> dict[str, str]:
    """``batch_stats=AT`` as places of collections by name.

    Raises:
        SurgeryError: a text has no ``=``, or a name stands twice.
    """
    return dict(_named(texts, "--bind", "NAME=AT", "batch_stats=ema/batch_stats"))


def _named(texts: Sequence[str], option: str, form: str, example: str) -> Iterator[tuple[str, str]]:
    seen = set()
    for text in texts:
        name, _, value = text.partition("=")
        if not name.isidentifier() or not value:
            raise _refusal(text, option, form, example)
        if name in seen:
            raise SurgeryError(
                f"`{option}` gives '{name}' twice", fix="keep one of them", field=option[2:]
            )
        seen.add(name)
        yield name, value


def _refusal(text: str, option: str, form: str, example: str) -> SurgeryError:
    return SurgeryError(
        f"`{option}` takes {form}, not '{text}'", fix=f"e.g. `{option} {example}`", field=option[2:]
    )


def _value(text: str) -> Any:
    try:
        return literal(text)
    except SurgeryError:
        return text
