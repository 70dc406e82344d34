"""The files that a probe writes: captured values, and a drawing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from surgery_cli.errors import SurgeryError, WriteError
from surgery_cli.inputs.addresses import local_address
from surgery_cli.probing.interface import documents
from surgery_cli.probing.interface.settings import ProbeOptions
from surgery_cli.probing.use_case.plotting import Curve, Panel, check_plot, draw
from surgery_cli.probing.use_case.session import Session
from surgery_cli.store.filesystem.modes import umask


def check_files(options: ProbeOptions, session: Session) -> None:
    """Refuse files that cannot be written, before anything is computed.

    Raises:
        SurgeryError: a suffix is wrong, a folder is not there, the file is an address of elsewhere or would stand in
            the checkpoint.
    """
    for target in filter(None, (options.save, options.plot)):
        local_address(target, is_written=True)
    if options.save is not None and Path(options.save).suffix != ".npz":
        raise SurgeryError(
            f"'{options.save}' does not end in .npz",
            fix="e.g. `--save activations.npz`",
            field="save",
        )
    if options.plot is not None:
        check_plot(Path(options.plot))
    for text, field in ((options.save, "save"), (options.plot, "plot")):
        if text is None:
            continue
        folder = Path(text).resolve().parent
        if not folder.is_dir():
            raise SurgeryError(f"there is no folder '{folder}' for '{text}'", field=field)
        if folder.is_relative_to(session.checkpoint.place_on_disk.resolve()):
            raise SurgeryError(
                f"'{text}' would stand inside the checkpoint",
                why="a checkpoint that is looked at stays as it is",
                fix="write it somewhere else",
                field=field,
            )
        _check_writable(Path(text), field)


def _check_writable(path: Path, field: str) -> None:
    """Refuse a file that cannot be made: only trying shows it on every file system, and for every user."""
    reason = "it is a directory" if path.is_dir() else ""
    try:
        with tempfile.TemporaryFile(prefix=f".{path.stem}-", dir=path.resolve().parent):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise SurgeryError(
            f"'{path}' cannot be written", why=reason, fix="write it somewhere else", field=field
        )


def save_values(path: Path, values: Mapping[str, Any]) -> None:
    """Write arrays by name; extension types such as bfloat16 as float32, which NumPy's format can hold."""
    import numpy as np

    held = {name: _plain(np.asarray(value)) for name, value in values.items()}
    _write(path, lambda target: np.savez(target, **held))


def _plain(value: Any) -> Any:
    import numpy as np

    return value.astype(np.float32) if value.dtype.kind == "V" else value


def draw_probe(path: Path, found: documents.Probe) -> None:
    """Draw activations, and gradients where there are any; of two runs both, and how far they are apart."""
    comparison = found.comparison
    if comparison is None:
        names = [site.name for site in found.sites]
        panels = _panels_of_one(found)
        first = found.first_non_finite.where if found.first_non_finite is not None else None
    else:
        names = [row.a for row in comparison.sites]
        panels = _panels_of_two(found.checkpoint, comparison)
        first = comparison.first_different
    _write(path, lambda target: draw(target, names, panels, first))


def _panels_of_one(found: documents.Probe) -> list[Panel]:
    seen = {"activation rms": [_rms(site.statistics) for site in found.sites]}
    if any(site.gradient is not None for site in found.sites):
        seen["gradient rms"] = [_rms(site.gradient) for site in found.sites]
    return [Panel(title, [Curve(found.checkpoint, values)]) for title, values in seen.items()]


def _panels_of_two(here: str, found: documents.ProbeComparison) -> list[Panel]:
    rows = found.sites
    apart = Curve("difference", [row.relative for row in rows])
    panels = [Panel("relative difference", [apart], limit=found.tolerance)]
    seen: dict[str, tuple[list[float | None], list[float | None]]] = {
        "activation rms": ([row.rms_a for row in rows], [row.rms_b for row in rows])
    }
    if any(row.gradient_rms_a is not None for row in rows):
        gradients = [row.gradient_rms_a for row in rows], [row.gradient_rms_b for row in rows]
        seen["gradient rms"] = gradients
    return panels + [
        Panel(title, [Curve(here, a), Curve(found.other, b)]) for title, (a, b) in seen.items()
    ]


def _rms(found: documents.ProbeStatistics | None) -> float | None:
    if found is None:
        return None
    return float("nan") if found.nan or found.inf else found.rms


def _write(path: Path, write: Callable[[Path], None]) -> None:
    """Write beside the file and rename, so that it is there whole or not at all."""
    partial: Path | None = None
    try:
        handle, name = tempfile.mkstemp(
            suffix=path.suffix, prefix=f".{path.stem}-", dir=path.resolve().parent
        )
        os.close(handle)
        partial = Path(name)
        write(partial)
        partial.chmod(0o666 & ~umask())
        partial.replace(path)
    except OSError as error:
        raise WriteError(f"'{path}' cannot be written", why=error.strerror or str(error)) from error
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
