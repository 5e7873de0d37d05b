"""The comparison in the README, made from the stored results of both commands."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from .chapters import times
from .conformance.model import ABSENT, BAD, GOOD, Cell
from .conformance.table import MARKS, MEASURED, Table
from .contenders.base import DRF, OURS
from .results import Results
from .tables import flat, table

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
STORED = ROOT / "docs" / "benchmarks"
BEGIN, END = "<!-- comparison -->\n", "<!-- /comparison -->\n"

_PAGES = "https://github.com/django-slidingwindow/django_slidingwindow/blob/main/docs"
_SMART = "django-smart-ratelimit, backend"


class _Column(NamedTuple):
    """The names of one library in the two kinds of results."""

    conformance: str
    view: str = ""
    """Empty for a library that knows nothing of views."""
    check: str = ""
    """Empty for a library that can only limit views."""


_OURS = _Column("**django_slidingwindow**", "**ours, decorator**", OURS)
_PEERS = (
    _Column("django-ratelimit", "django-ratelimit (fixed window)"),
    _Column("django-smart-ratelimit, decorator", "django-smart-ratelimit, decorator", _SMART),
    _Column("django-smart-ratelimit, middleware", "django-smart-ratelimit, middleware", _SMART),
    _Column("DRF throttling", DRF),
    _Column("limits, moving window", check="limits, moving window"),
    _Column("throttled-py, sliding window", check="throttled-py, sliding window"),
    _Column("pyrate-limiter", check="pyrate-limiter"),
)
_ROWS = {
    "boundary": "most admitted in any window, limit 10",
    "crowd": "admitted by 8 processes, limit 100",
    "clock": "admitted with one wrong clock, limit 10",
    "readmission": "a client that keeps trying is admitted again",
    "retry-after": "`Retry-After`",
    "several": "charged to one limit by refusals of another",
    "spoofed": "past the limit by a forged `X-Forwarded-For`, as installed",
    "frozen": "worst request while Redis is frozen, as installed",
    "memory": "memory of a key, limit 100",
    "async": "async view while Redis is slow",
}
LIBRARIES = (
    "django-ratelimit",
    "django-smart-ratelimit",
    "djangorestframework",
    "limits",
    "throttled-py",
    "pyrate-limiter",
)
"""The packages whose releases the comparison names."""

_HEAD = """
✔ good, ✘ bad, – not offered. `tox -e conformance` measures all rows but the last two; each library
is configured at its best, unless a row says "as installed". The [full
table]({pages}/benchmarks/conformance.md) has more rows and says what counts as good. `tox -e bench`
measures the last two rows: the CPU time of client and Redis for an admitted / a refused request, as
a multiple of one trivial `EVALSHA`. At most 1 counts as good. The
[benchmarks]({pages}/benchmarks.md) have the details.
"""
_EXACT = "{} are also exact, across a boundary and under 8 processes."
_TRUE = "{} also tell a client the true time to wait."
_TUNED = """
With time-outs of 0.25 s and fail-open set, {} also answer within 2 s while Redis is frozen.
"""
_SMALL = "{} need less memory for a key."
_LIBRARIES = "limits, throttled-py and pyrate-limiter do not need Django."
_FACTS = """
Measured in {month} on Redis {redis} with redis-py {client}: {versions}.
"""


def write() -> None:
    """Write the README's comparison again."""
    text = README.read_text(encoding="utf-8")
    README.write_text(rewritten(text), encoding="utf-8")


def rewritten(text: str) -> str:
    """Return the README with the comparison that the stored results make."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    made = comparison(Table.load(STORED), Results.load(STORED / "results.json"))
    return f"{before}{BEGIN}\n{made}\n{END}{after}"


def comparison(found: Table, results: Results) -> str:
    """Return what stands between the two comments."""
    columns = (_OURS, *_PEERS)
    rows = [
        [title, *(found.shown(slug, column.conformance) for column in columns)]
        for slug, title in _ROWS.items()
    ]
    rows += [
        ["CPU that a limit adds to a view", *(_in_view(results, column) for column in columns)],
        ["CPU of a check without a view", *(_by_itself(results, column) for column in columns)],
    ]
    head = ["", *(column.conformance for column in columns)]
    parts = [_filled(_HEAD.format(pages=_PAGES)), table(head, rows), _fair(found), _facts(found)]
    return "\n".join(parts)


def _in_view(results: Results, column: _Column) -> str:
    return _ratios(results, "views", column.view) if column.view else _shown(ABSENT, "no views")


def _by_itself(results: Results, column: _Column) -> str:
    if not column.check:
        return _shown(ABSENT, "views only")
    return _ratios(results, "library", column.check)


def _ratios(results: Results, section: str, contender: str) -> str:
    """Return the ratios of an admitted and a refused request; nothing if one is missing."""
    cases = ("allowed", "refused")
    values = [results.value(section, case, contender, "ratio") for case in cases]
    ratios = [value for value in values if value is not None]
    if len(ratios) < len(cases):
        return ""
    return _shown(GOOD if max(ratios) <= 1 else BAD, " / ".join(map(times, ratios)))


def _shown(mark: str, text: str) -> str:
    return f"{MARKS[mark]} {text}"


def _fair(found: Table) -> str:
    said = {
        _EXACT: _good_in(found, "boundary", "crowd"),
        _TRUE: _good_in(found, "retry-after"),
        _TUNED: _good_in(found, "frozen-tuned"),
        _SMALL: _smaller(found),
    }
    sentences = [words.format(_listed(names)) for words, names in said.items() if names]
    return _filled(" ".join(["Where others are as good or better:", *sentences, _LIBRARIES]))


def _good_in(found: Table, *slugs: str) -> list[str]:
    """Return the peers that are good in all these scenarios.

    The kind follows in brackets if another kind of the same library is not good.
    """
    good = [peer for peer in _PEERS if all(_cell(found, slug, peer).mark == GOOD for slug in slugs)]
    others = {_library(peer) for peer in _PEERS if peer not in good}
    names = []
    for peer in good:
        library, _, kind = peer.conformance.partition(", ")
        names.append(f"{library} ({kind})" if library in others else library)
    return list(dict.fromkeys(names))


def _smaller(found: Table) -> list[str]:
    """Return the peers whose key is smaller than ours, with its size."""
    cells = {peer: _cell(found, "memory", peer) for peer in (_OURS, *_PEERS)}
    sizes = {peer: cell.values.get("bytes", math.inf) for peer, cell in cells.items()}
    return [
        f"{_library(peer)} ({cells[peer].text})" for peer in _PEERS if sizes[peer] < sizes[_OURS]
    ]


def _cell(found: Table, slug: str, column: _Column) -> Cell:
    return found.cells.get((slug, column.conformance), Cell(ABSENT, ""))


def _facts(found: Table) -> str:
    facts = found.facts
    return _filled(
        _FACTS.format(
            month=f"{datetime.fromisoformat(facts[MEASURED][:10]):%B %Y}",
            redis=facts["redis server"],
            client=facts["redis"],
            versions=_listed(f"{name} {facts[name]}" for name in LIBRARIES),
        )
    )


def _library(column: _Column) -> str:
    return column.conformance.partition(", ")[0]


def _listed(names: Iterable[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _filled(text: str) -> str:
    """Return a paragraph with the README's width."""
    width = 100
    filled = textwrap.fill(flat(text), width, break_long_words=False, break_on_hyphens=False)
    return f"{filled}\n"
