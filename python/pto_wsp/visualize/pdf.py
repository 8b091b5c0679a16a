"""Drawings as PDF, by fpdf2 (the extra `[visualize]`)."""

from __future__ import annotations

import importlib
from typing import Any

from pto_wsp.errors import MissingPackage
from pto_wsp.visualize.drawing import Arrow, Box, Drawing, Line, Shape, Text

_LARGEST = 14000.0
"""Readers of PDF take pages up to this size; larger drawings are scaled."""


def to_pdf(drawing: Drawing) -> bytes:
    """Return a drawing as a PDF of one page of its size.

    Raises:
        MissingPackage: fpdf2 is not installed.
    """
    try:
        fpdf = importlib.import_module("fpdf")
    except ImportError:
        raise MissingPackage(package="fpdf2", extra="visualize", what="PDF") from None
    scale = min(1.0, _LARGEST / max(drawing.width, drawing.height))
    pdf = fpdf.FPDF(unit="pt", format=(drawing.width * scale, drawing.height * scale))
    pdf.set_auto_page_break(False)
    pdf.add_page()
    for shape in drawing.shapes:
        _draw(pdf, shape, scale)
    return bytes(pdf.output())


def _draw(pdf: Any, shape: Shape, scale: float) -> None:
    match shape:
        case Box():
            place = [scale * length for length in (shape.x, shape.y, shape.width, shape.height)]
            pdf.set_fill_color(*_rgb(shape.fill))
            pdf.set_draw_color(*_rgb(shape.stroke or shape.fill))
            pdf.set_line_width(scale)
            # Corners need room: readers draw bars that are thinner than their corners as blots.
            radius = scale * min(shape.radius, shape.width / 2, shape.height / 2)
            pdf.rect(
                *place, style="DF" if shape.stroke else "F", round_corners=radius > 0, corner_radius=radius
            )
        case Text():
            _write(pdf, shape, scale)
        case Line():
            pdf.set_draw_color(*_rgb(shape.stroke))
            pdf.set_line_width(scale * shape.width)
            pdf.line(scale * shape.x0, scale * shape.y0, scale * shape.x1, scale * shape.y1)
        case Arrow():
            _draw_arrow(pdf, shape, scale)


def _write(pdf: Any, text: Text, scale: float) -> None:
    pdf.set_font("Helvetica", "B" if text.is_bold else "", text.size * scale)
    pdf.set_text_color(*_rgb(text.fill))
    # The fonts that every reader has know Latin 1 only.
    written = text.text.encode("latin-1", "replace").decode("latin-1")
    before = {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor]
    pdf.text(text.x * scale - before * pdf.get_string_width(written), text.y * scale, written)


def _draw_arrow(pdf: Any, arrow: Arrow, scale: float) -> None:
    pdf.set_draw_color(*_rgb(arrow.stroke))
    pdf.set_line_width(scale * arrow.width)
    points = [(scale * x, scale * y) for x, y in arrow.points]
    if arrow.is_dashed:
        pdf.set_dash_pattern(4 * scale, 3 * scale)
    pdf.bezier(points, style="D")
    pdf.set_dash_pattern()
    x, y = points[-1]
    for head_x, head_y in arrow.head:
        pdf.line(scale * head_x, scale * head_y, x, y)


def _rgb(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
