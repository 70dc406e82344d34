"""Plan × TreeSpecs → Draft: the edits of a plan fold from left to right over the source's tree."""

from surgery_cli.resolution.fold import refuse_other_donors, resolve

__all__ = ["refuse_other_donors", "resolve"]
