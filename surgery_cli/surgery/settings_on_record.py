"""What a run was told beside its plan, as its record says it."""

from __future__ import annotations

from surgery_cli.settings.declaration import for_record
from surgery_cli.settings.run import Options
from surgery_cli.settings.shared import AbovePlan


def settings_on_record(options: Options) -> dict[str, str]:
    """What a run was told beside its plan that the result, or what is proved of it, depends on, by option."""
    told = for_record(options, but=AbovePlan.__struct_fields__)
    return told | ({} if options.probe is None else for_record(options.probe_options))
