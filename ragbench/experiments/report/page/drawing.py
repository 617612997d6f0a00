"""Pictures of Vega-Lite specifications, by vl-convert.

A chart is drawn once, as SVG with the page's colours as CSS variables, so that it follows the
page's theme without a script; for papers the same chart is written with the colours of a theme.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ragbench.errors import needs_extra

Spec = dict[str, Any]

#: Colours on white paper by the name of the page's variable; series by Okabe and Ito (2008).
PAPER: Mapping[str, str] = {
    "ink": "#1b1f24", "muted": "#5d6673", "line": "#e3e6ea", "grey": "#b9c0c9",
    "s0": "#0072b2", "s1": "#d55e00", "s2": "#009e73", "s3": "#cc79a7", "s4": "#e69f00",
    "s5": "#56b4e9", "s6": "#7a5195", "s7": "#8c6d31", "s8": "#374c80", "s9": "#b04a5a",
}  # fmt: skip
#: Characters of a text in a chart at the most; an expression of a legend may be longer.
_LONGEST = 4000


def to_svg(spec: Spec, colours: Mapping[str, str] | None = None) -> str:
    """The chart as SVG: in the page's variables, or in `colours` by the variables' names.

    Raises:
        MissingExtraError: the package that draws is not installed.
    """
    svg: str = _converter().vegalite_to_svg({**_cleaned(spec), **_STYLE})
    return _coloured(svg, colours) if colours else svg


def to_png(spec: Spec, colours: Mapping[str, str] = PAPER, *, scale: float = 2.0) -> bytes:
    """The chart as PNG, `scale` times 96 dots an inch, on a white ground.

    Raises:
        MissingExtraError: the package that draws is not installed.
    """
    png: bytes = _converter().svg_to_png(to_svg(spec, {**colours, "paper": "#ffffff"}), scale)
    return png


def _cleaned(part: Any) -> Any:
    """`part` of a chart with texts that can be drawn: printable, and cut where they are long."""
    if isinstance(part, str):
        text = "".join(c if c.isprintable() else " " for c in part)
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    if isinstance(part, Mapping):
        return {name: _cleaned(value) for name, value in part.items()}
    if isinstance(part, list):
        return [_cleaned(value) for value in part]
    return part


def _converter() -> Any:
    with needs_extra("a page with charts"):
        import vl_convert
    return vl_convert


def _coloured(svg: str, colours: Mapping[str, str]) -> str:
    return re.sub(r"var\(--([a-z0-9]+)\)", lambda m: colours.get(m[1], "#ffffff"), svg)


_STYLE: Spec = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "background": "transparent",
    "padding": {"left": 12, "right": 12, "top": 5, "bottom": 5},
    "config": {
        "font": "Arial, Liberation Sans, sans-serif",
        "view": {"stroke": None},
        "title": {"color": "var(--ink)", "anchor": "start", "fontSize": 12},
        "axis": {
            "labelColor": "var(--muted)", "titleColor": "var(--muted)", "gridColor": "var(--line)",
            "domainColor": "var(--line)", "tickColor": "var(--line)", "titleFontWeight": "normal",
        },
        "legend": {"labelColor": "var(--ink)", "labelLimit": 260},
    },
}  # fmt: skip
