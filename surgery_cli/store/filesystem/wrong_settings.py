"""Settings of the user's by which a service is found and asked, where they are wrong: it is asked for nothing then."""

from __future__ import annotations


class WrongSetting(Exception):
    """Nothing was asked of the service, and nothing will be before the setting is another: trying again is no help."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.why = why
        self.fix = fix
