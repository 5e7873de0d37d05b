"""Tables and paragraphs in Markdown."""

from __future__ import annotations


def table(head: list[str], rows: list[list[str]]) -> str:
    drawn = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    drawn += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(drawn) + "\n"


def flat(text: str) -> str:
    """Return the text in one line."""
    return " ".join(text.split())
