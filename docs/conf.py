"""How Sphinx builds these pages: `tox -e docs`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pygments.lexers.special import TextLexer

from django_slidingwindow import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "django_slidingwindow"
author = "django_slidingwindow contributors"
copyright = author  # noqa: A001 -- Sphinx names it so
release = version = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]
nitpicky = True

html_theme = "furo"
html_title = f"Sliding windows {release}"
html_show_sphinx = False


def setup(app: Sphinx) -> None:
    # Redis's ACL lines: nobody has a lexer for them, and an unknown name is a warning.
    app.add_lexer("acl", TextLexer)
