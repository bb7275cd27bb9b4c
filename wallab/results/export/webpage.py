"""Pages that need no network: a template of the folder `page` with its style and its scripts."""

import base64
import hashlib
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

_PAGE = Path(__file__).parent / "page"


def render(name: str, scripts: tuple[str, ...], **fields: Any) -> str:
    """Return the page; every name in it is escaped, and only the lab's own scripts may run."""
    pages = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_PAGE),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    script = "".join((_PAGE / part).read_text() for part in scripts)
    return pages.get_template(name).render(
        style=Markup((_PAGE / "page.css").read_text()),  # noqa: S704 - the lab's own
        script=Markup(script),  # noqa: S704 - the lab's own
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        **fields,
    )
