"""Write SVG, with only the elements that these pictures need."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

# Colours that are readable on a light and on a dark background.
INK, QUIET, ADMITTED, REFUSED, ACCENT = "#57606a", "#8c959f", "#2da44e", "#cf222e", "#0969da"
PALETTE = (ACCENT, "#8250df", "#bf8700", ADMITTED)


class Picture:
    """Elements on a canvas; `text()` returns the file."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = width, height
        self._title = title
        self._parts: list[str] = []

    def line(
        self, x1: float, y1: float, x2: float, y2: float, *, color: str = QUIET, dash: str = ""
    ) -> None:
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{color}"{dashes}/>'
        )

    def path(self, points: Iterable[tuple[float, float]], *, color: str) -> None:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="2"/>'
        )

    def dot(self, x: float, y: float, *, color: str, hollow: bool = False) -> None:
        fill = "none" if hollow else color
        self._parts.append(
            f'<circle cx="{x:g}" cy="{y:g}" r="4" fill="{fill}" stroke="{color}"'
            ' stroke-width="1.5"/>'
        )

    def box(
        self, x: float, y: float, width: float, height: float, *, color: str = QUIET, fill: str = ""
    ) -> None:
        inside = f'fill="{fill}" fill-opacity="0.12"' if fill else 'fill="none"'
        self._parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" {inside}'
            f' stroke="{color}"/>'
        )

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        color: str = INK,
        size: int = 13,
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        weight = ' font-weight="600"' if bold else ""
        self._parts.append(
            f'<text x="{x:g}" y="{y:g}" fill="{color}" font-size="{size}"'
            f' text-anchor="{anchor}"{weight}>{escape(text)}</text>'
        )

    def text(self) -> str:
        width, height = self._size
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
            f' width="{width}" height="{height}" role="img" font-family="system-ui, sans-serif">'
        )
        title = f"<title>{escape(self._title)}</title>"
        return "\n".join([head, title, *self._parts, "</svg>"]) + "\n"
