"""Drawings: a few kinds of shapes at places, and how they are written as SVG.

Lengths are in points, x to the right and y down; colours are `#rrggbb`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import hypot

from pto_wsp.support.record import record
from pto_wsp.support.text import TextWriter

INK, PALE, GRID, PAPER = "#1f2430", "#5d6574", "#d8dce3", "#ffffff"
COLOURS = (
    "#2f6db3",
    "#c8701c",
    "#2f8a50",
    "#b5495b",
    "#7a57a8",
    "#148592",
    "#8d6a24",
    "#5f6b7a",
    "#a23e8c",
    "#4c7a1f",
    "#3a4fa8",
    "#9a4a2f",
)
"""White text can be read on all of them."""


def colour_of(index: int) -> str:
    """Return the colour of the kernel with a number."""
    return COLOURS[index % len(COLOURS)]


@record
class Box:
    """A rectangle, with a text that shows where a pointer rests on it."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str = ""
    radius: float = 0.0
    title: str = ""


@record
class Text:
    """A line of text; `anchor` is `start`, `middle` or `end`."""

    x: float
    y: float
    text: str
    size: float = 12.0
    fill: str = INK
    anchor: str = "start"
    is_bold: bool = False


@record
class Line:
    """A straight line."""

    x0: float
    y0: float
    x1: float
    y1: float
    stroke: str = GRID
    width: float = 1.0


Point = tuple[float, float]


@record
class Arrow:
    """A curve with a head at its end: from left to right, unless `turns` gives its control points."""

    x0: float
    y0: float
    x1: float
    y1: float
    stroke: str
    width: float = 1.0
    is_dashed: bool = False
    title: str = ""
    turns: tuple[Point, Point] | None = None

    @property
    def points(self) -> tuple[Point, Point, Point, Point]:
        """The curve as a cubic: its start, two control points, its end."""
        bend = (self.x1 - self.x0) / 2
        first, second = self.turns or ((self.x0 + bend, self.y0), (self.x1 - bend, self.y1))
        return (self.x0, self.y0), first, second, (self.x1, self.y1)

    @property
    def head(self) -> tuple[Point, Point]:
        """The ends of the two strokes that make the head; both begin at the end of the curve."""
        _, _, (x, y), (x1, y1) = self.points
        length = hypot(x1 - x, y1 - y) or 1.0
        along, across = HEAD * (x1 - x) / length, HEAD * (y1 - y) / length
        back_x, back_y = x1 - along, y1 - across
        return (back_x + across / 2, back_y - along / 2), (back_x - across / 2, back_y + along / 2)


Shape = Box | Text | Line | Arrow

HEAD = 6.0
"""Length of an arrow's head."""


@record
class Drawing:
    """Shapes, those below others first.

    Attributes:
        width: of the whole.
        height: of the whole.
        shapes: what is drawn.
    """

    width: float
    height: float
    shapes: Sequence[Shape]


def text_width(text: str, size: float = 12.0) -> float:
    """Return about how wide a text is."""
    narrow = sum(letter in "iljtf.,:;|!'()[] " for letter in text)
    return size * (0.61 * (len(text) - narrow) + 0.33 * narrow)


def legend(entries: Sequence[tuple[str, str]], x: float, y: float, width: float) -> tuple[list[Shape], float]:
    """Return a legend of names and their colours in rows of a width, and how high it is."""
    shapes: list[Shape] = []
    left, top = x, y
    for name, colour in entries:
        needed = text_width(name) + 40
        if left > x and left + needed > x + width:
            left, top = x, top + 20
        shapes.append(Box(left, top, 12, 12, colour, radius=2))
        shapes.append(Text(left + 18, top + 10.5, name))
        left += needed
    return shapes, top + 20 - y if entries else 0.0


def to_svg(drawing: Drawing) -> str:
    """Return a drawing as SVG, a document of its own and fit for HTML."""
    size = f'width="{drawing.width:.0f}" height="{drawing.height:.0f}"'
    out = TextWriter()
    out.line(f'<svg xmlns="http://www.w3.org/2000/svg" {size}')
    out.line(f'     viewBox="0 0 {drawing.width:.0f} {drawing.height:.0f}"')
    out.line('     font-family="Helvetica, Arial, sans-serif">')
    with out.indented():
        out.line(f'<rect width="100%" height="100%" fill="{PAPER}"/>')
        for shape in drawing.shapes:
            out.line(_element(shape))
    out.line("</svg>")
    return str(out)


def escaped(text: str) -> str:
    """Return text as XML and HTML write it; its lines stay lines."""
    for letter, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        text = text.replace(letter, f"&{name};")
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in text
    )


def _element(shape: Shape) -> str:
    match shape:
        case Box():
            place = (
                f'x="{shape.x:.1f}" y="{shape.y:.1f}" width="{shape.width:.1f}" height="{shape.height:.1f}"'
            )
            look = f'fill="{shape.fill}"' + (f' stroke="{shape.stroke}"' if shape.stroke else "")
            round_ = f' rx="{shape.radius:g}"' if shape.radius else ""
            return _titled("rect", f"{place} {look}{round_}", shape.title)
        case Text():
            look = f'font-size="{shape.size:g}" fill="{shape.fill}"'
            look += f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
            look += ' font-weight="bold"' if shape.is_bold else ""
            return f'<text x="{shape.x:.1f}" y="{shape.y:.1f}" {look}>{escaped(shape.text)}</text>'
        case Line():
            place = f'x1="{shape.x0:.1f}" y1="{shape.y0:.1f}" x2="{shape.x1:.1f}" y2="{shape.y1:.1f}"'
            return f'<line {place} stroke="{shape.stroke}" stroke-width="{shape.width:g}"/>'
        case Arrow():
            look = f'fill="none" stroke="{shape.stroke}" stroke-width="{shape.width:.1f}"'
            look += ' stroke-dasharray="4 3"' if shape.is_dashed else ""
            return _titled("path", f'd="{_path(shape)}" {look}', shape.title)


def _path(arrow: Arrow) -> str:
    start, first, second, end = (f"{x:.1f} {y:.1f}" for x, y in arrow.points)
    one, other = (f"{x:.1f} {y:.1f}" for x, y in arrow.head)
    return f"M{start}C{first} {second} {end}M{one}L{end}L{other}"


def _titled(name: str, attributes: str, title: str) -> str:
    if not title:
        return f"<{name} {attributes}/>"
    return f"<{name} {attributes}><title>{escaped(title)}</title></{name}>"
