"""Update the translations: extract the texts of the package, and compile the catalogues.

python scripts/messages.py

Every `.po` file in django_slidingwindow/locale gets all texts of the sources. Translations stay,
and texts that no longer exist are removed. Then every `.po` file is compiled to a `.mo` file.
This needs polib, but not GNU gettext. To add a language, add its plural rule below.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import polib
from django.utils.translation import templatize

PACKAGE = Path(__file__).parent.parent / "django_slidingwindow"
LOCALE = PACKAGE / "locale"
PLURALS: Mapping[str, str] = {
    "de": "nplurals=2; plural=(n != 1);",
    "es": "nplurals=3; plural=n == 1 ? 0 : n != 0 && n % 1000000 == 0 ? 1 : 2;",
    "fr": "nplurals=2; plural=(n > 1);",
    "ja": "nplurals=1; plural=0;",
    "pt_BR": "nplurals=2; plural=(n > 1);",
    "zh_Hans": "nplurals=1; plural=0;",
}
"""The plural rules of Django 5.2."""

OF_DJANGO = frozenset({"All dates", "Home", "No, take me back", "Past 7 days", "Search"})
"""Texts without a context that Django's admin translates. They are not in our catalogues."""

# The meaning of the arguments of each function that marks a text.
_TEXT, _CONTEXT, _PLURAL = "msgid", "msgctxt", "msgid_plural"
_MARKS = {
    **dict.fromkeys(("_", "gettext", "gettext_lazy", "gettext_noop"), (_TEXT,)),
    **dict.fromkeys(("pgettext", "pgettext_lazy", "pgettext_noop"), (_CONTEXT, _TEXT)),
    "ngettext": (_TEXT, _PLURAL),
    # Problems of profiles, which the admin translates.
    **dict.fromkeys(("Text", "PolicyError"), (_TEXT,)),
}
_FLAGS = {"python-format": "%(", "python-brace-format": "{"}
_CALL = re.compile(
    r"""\b(?:n|p|np)?gettext\((?:u?'(?:\\.|[^'\\])*'|u?"(?:\\.|[^"\\])*"|[\w, ])*\)"""
)


class Message(NamedTuple):
    """A text to translate. Two texts with different contexts are different messages."""

    msgctxt: str | None
    msgid: str
    msgid_plural: str | None


def extract() -> dict[Message, list[str]]:
    """Return the texts of the package, each with the files that contain it."""
    found: dict[Message, list[str]] = {}
    for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html")]):
        name = path.relative_to(PACKAGE.parent).as_posix()
        for message in _messages(path):
            files = found.setdefault(message, [])
            if name not in files:
                files.append(name)
    return found


def _messages(path: Path) -> Iterator[Message]:
    source = path.read_text()
    if path.suffix == ".html":
        # Only the calls of gettext remain readable in the result of `templatize`.
        source = "\n".join(match[0] for match in _CALL.finditer(templatize(source)))
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        roles = _MARKS.get(call.func.id, ()) if isinstance(call.func, ast.Name) else ()
        texts = {
            role: argument.value
            for role, argument in zip(roles, call.args, strict=False)
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        }
        # A variable cannot be extracted. Its text is marked where it is defined.
        if roles and len(texts) == len(roles) and texts[_TEXT] not in OF_DJANGO:
            yield Message(texts.get(_CONTEXT), texts[_TEXT], texts.get(_PLURAL))


def catalogue(
    language: str, messages: Mapping[Message, list[str]], old: Iterable[polib.POEntry]
) -> polib.POFile:
    """Return a catalogue with all messages, and the translations of the old one."""
    new = polib.POFile()
    new.metadata = {
        "Project-Id-Version": "django_slidingwindow",
        "Language": language,
        "MIME-Version": "1.0",
        "Content-Type": "text/plain; charset=UTF-8",
        "Content-Transfer-Encoding": "8bit",
        "Plural-Forms": PLURALS[language],
    }
    known = {
        Message(entry.msgctxt, entry.msgid, entry.msgid_plural or None): entry for entry in old
    }
    for message, files in messages.items():
        entry = polib.POEntry(
            msgctxt=message.msgctxt,
            msgid=message.msgid,
            msgid_plural=message.msgid_plural or "",
            occurrences=[(name, "") for name in files],
            flags=[flag for flag, sign in _FLAGS.items() if sign in message.msgid],
        )
        before = known.get(message)
        if message.msgid_plural:
            forms = range(int(PLURALS[language][len("nplurals=")]))
            given = before.msgstr_plural if before else {}
            entry.msgstr_plural = {form: given.get(form, "") for form in forms}
        elif before:
            entry.msgstr = before.msgstr
        new.append(entry)
    return new


def main() -> None:
    messages = extract()
    for language in PLURALS:
        path = LOCALE / language / "LC_MESSAGES" / "django.po"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = catalogue(language, messages, polib.pofile(str(path)) if path.exists() else [])
        new.save(str(path))
        path.with_suffix(".mo").write_bytes(new.to_binary())
        print(f"{language}: {len(new)} texts, {len(new.untranslated_entries())} not translated")


if __name__ == "__main__":
    main()
