"""Small deterministic SVG drawings; whatever text is given stays text."""

import contextlib
from collections.abc import Iterator
from html import escape

LIGHT = {
    "ink": "#1b1f24",
    "muted": "#5c6570",
    "rule": "#d9dee4",
    "accent": "#2563a8",
    "mark": "#b4412f",
    "waited": "#d98a00",
    "moved": "#2f7fc1",
    "transferred": "#17936b",
    "idle": "#e6e9ed",
}
"""Role -> colour on white, for drawings that stand alone; in a page its style sheet decides."""


def number(value: float) -> str:
    """Write a coordinate with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


class Drawing:
    """A drawing of so many units; shapes are coloured by their role."""

    def __init__(self, width: float, height: float, label: str) -> None:
        """`label` says in words what is seen, for those who do not see it."""
        self._size = (number(width), number(height))
        self._label = escape(label)
        self._parts: list[str] = []

    @contextlib.contextmanager
    def group(self, **data: int) -> Iterator[None]:
        """Keep what is drawn meanwhile together; a script finds it by its data, such as cell=3."""
        names = "".join(f' data-{name}="{value}"' for name, value in data.items())
        self._parts.append(f"<g{names}>")
        yield
        self._parts.append("</g>")

    def rect(self, x: float, y: float, width: float, height: float, role: str) -> None:
        """Draw a filled rectangle."""
        self._parts.append(
            f'<rect x="{number(x)}" y="{number(y)}" width="{number(max(0, width))}" '
            f'height="{number(height)}" class="{role}"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, role: str) -> None:
        """Draw a thin line."""
        self._parts.append(
            f'<line x1="{number(x1)}" y1="{number(y1)}" x2="{number(x2)}" y2="{number(y2)}" '
            f'class="stroke-{role}"/>'
        )

    def path(self, points: list[tuple[float, float]], role: str) -> None:
        """Draw a line through the points."""
        through = " ".join(f"{number(x)},{number(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{through}" class="stroke-{role}"/>')

    def dot(self, x: float, y: float, role: str, title: str = "", radius: float = 2.5) -> None:
        """Draw a dot; `title` is shown when it is pointed at."""
        about = f"<title>{escape(title)}</title>" if title else ""
        self._parts.append(
            f'<circle cx="{number(x)}" cy="{number(y)}" r="{number(radius)}" class="{role}">'
            f"{about}</circle>"
        )

    def text(
        self, x: float, y: float, words: str, role: str = "ink", *, anchor: str = "start"
    ) -> None:
        """Write text; anchor is start, middle or end."""
        self._parts.append(
            f'<text x="{number(x)}" y="{number(y)}" text-anchor="{anchor}" class="{role}">'
            f"{escape(words)}</text>"
        )

    def _element(self, head: str, style: str) -> str:
        width, height = self._size
        return (
            f'<svg {head}viewBox="0 0 {width} {height}" role="img" aria-label="{self._label}">'
            + style
            + "".join(self._parts)
            + "</svg>"
        )

    def inline(self) -> str:
        """Return the drawing for a page that has colours for the roles."""
        return self._element("", "")

    def file(self) -> str:
        """Return the drawing as a file of its own, on white."""
        colours = "".join(
            f".{role}{{fill:{colour}}}.stroke-{role}{{stroke:{colour};fill:none}}"
            for role, colour in LIGHT.items()
        )
        style = f"<style>text{{font:12px system-ui,sans-serif}}{colours}</style>"
        width, height = self._size
        head = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        ground = f'<rect width="{width}" height="{height}" fill="#fff"/>'
        return self._element(head, style + ground) + "\n"
