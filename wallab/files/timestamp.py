"""The time of day, as it is written in records."""

import time


def utc() -> str:
    """The time now, such as 2026-01-31T12:00:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
