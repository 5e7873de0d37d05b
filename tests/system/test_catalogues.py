"""The catalogues of translations are complete, correct and compiled."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import django
import messages
import polib
import pytest
from django.apps import apps
from django.utils import translation
from django.utils.functional import Promise

from django_slidingwindow.models import Rejection

SOURCES = messages.extract()
LANGUAGES = sorted(messages.PLURALS)
DJANGO = Path(django.__file__).parent
# Not translated, like log lines and commands.
FOR_DEVELOPERS = {
    messages.PACKAGE / "templates" / "django_slidingwindow" / name
    for name in ("debug_toolbar.html", "replay.html")
}


def read(language: str, root: Path = messages.PACKAGE) -> polib.POFile:
    return polib.pofile(str(root / "locale" / language / "LC_MESSAGES" / "django.po"))


def placeholders(text: str, *, braces: bool) -> list[str]:
    """Return the placeholders of a text with their formats, sorted."""
    if not braces:
        return sorted(re.findall(r"%\(\w+\)[a-z]|%%", text))
    parsed = Formatter().parse(text)
    return sorted(f"{name}!{how}:{spec}" for _, name, spec, how in parsed if name is not None)


def strings(entry: polib.POEntry) -> list[str]:
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def test_folders_are_the_languages() -> None:
    assert sorted(path.name for path in messages.LOCALE.iterdir()) == LANGUAGES
    assert set(LANGUAGES) == {"de", "es", "fr", "ja", "pt_BR", "zh_Hans"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_catalogue_is_what_the_script_writes(language: str) -> None:
    """The catalogue has exactly the texts of the sources. If not, run scripts/messages.py."""
    catalogue = read(language)
    expected = messages.catalogue(language, SOURCES, catalogue)
    path = messages.LOCALE / language / "LC_MESSAGES" / "django.po"
    assert path.read_text() == str(expected)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_is_translated(language: str) -> None:
    for entry in read(language):
        assert all(strings(entry)), entry.msgid
        assert not entry.fuzzy, entry.msgid
        assert not entry.obsolete, entry.msgid


@pytest.mark.parametrize("language", LANGUAGES)
def test_placeholders_agree(language: str) -> None:
    for entry in read(language):
        braces = "{" in entry.msgid
        # A singular form may leave out the number, so it is compared with those of the plural.
        wanted = placeholders(entry.msgid_plural or entry.msgid, braces=braces)
        for text in strings(entry):
            assert placeholders(text, braces=braces) == wanted, entry.msgid


@pytest.mark.parametrize("language", LANGUAGES)
def test_layout_of_a_text_is_kept(language: str) -> None:
    """A translation ends with a full stop or question mark like its text, and adds no space."""
    ends = re.compile("[.\u3002?\uff1f]$")
    for entry in read(language):
        for text in strings(entry):
            assert text == text.strip(), entry.msgid
            assert "\n" not in text
            assert bool(ends.search(text)) == bool(ends.search(entry.msgid)), text


@pytest.mark.parametrize("language", LANGUAGES)
def test_compiled_catalogue_equals_its_source(language: str) -> None:
    source = read(language)
    compiled = messages.LOCALE / language / "LC_MESSAGES" / "django.mo"
    assert compiled.read_bytes() == source.to_binary()


def test_text_of_one_word_has_a_context() -> None:
    """Django merges the catalogues of all apps, where the word may mean something else."""
    assert [m.msgid for m in SOURCES if " " not in m.msgid and m.msgctxt is None] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_text_of_django_is_translated_anew(language: str) -> None:
    admin = {
        entry.msgid: entry
        for entry in read(language, DJANGO / "contrib" / "admin")
        if entry.msgctxt is None
    }
    theirs = set(admin) | {entry.msgid for entry in read(language, DJANGO / "conf")}
    assert {message.msgid for message in SOURCES if message.msgctxt is None} & theirs == set()
    assert all(admin[text].msgstr for text in messages.OF_DJANGO)


def test_names_and_help_of_the_model_are_marked() -> None:
    texts = {message.msgid for message in SOURCES}
    config = apps.get_app_config("django_slidingwindow")
    shown = [config.verbose_name, Rejection._meta.verbose_name, Rejection._meta.verbose_name_plural]
    for field in Rejection._meta.concrete_fields:
        if field.name not in ("id", "digest"):
            shown.append(field.verbose_name)
        shown.append(field.help_text)
    with translation.override("en"):
        for text in filter(None, shown):
            assert isinstance(text, Promise), text
            assert str(text) in texts


def test_template_has_no_text_outside_of_translations() -> None:
    """Without its tags, a template has only punctuation and examples."""
    templates = {*messages.PACKAGE.rglob("*.html")} - FOR_DEVELOPERS
    assert templates
    for path in templates:
        source = re.sub(
            r"(?s)<style.*?</style>|{% block bodyclass.*?endblock", "", path.read_text()
        )
        source = re.sub(r"(?s){% blocktranslate.*?{% endblocktranslate %}", "", source)
        source = re.sub(r"(?s){[{%#].*?[%}#]}", "", source)
        text = re.sub(r"(?s)<[^>]*>", "", source)
        assert not re.search(r"[A-Za-z]{2}", text), (path.name, text)


def test_script_finds_texts_of_every_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "a.py").write_text(
        'gettext("one")\n_("t" "wo")\nngettext("a", "b", n)\npgettext_lazy("c", "d")\n'
        'gettext(name)\nText("{x} is wrong.", x=1)\nother("no")\nmodule.gettext("no")\n'
    )
    (package / "b.html").write_text(
        '{% load i18n %}{% translate "it\'s" %}{% translate "x" context \'c\' %}'
        "{% blocktranslate count n=n %}{{ n }} a{% plural %}{{ n }} (b){% endblocktranslate %}"
        "{% translate 'Home' %}{% translate 'one' %}"
    )
    monkeypatch.setattr(messages, "PACKAGE", package)
    assert messages.extract() == {
        (None, "one", None): ["package/a.py", "package/b.html"],
        (None, "two", None): ["package/a.py"],
        (None, "a", "b"): ["package/a.py"],
        ("c", "d", None): ["package/a.py"],
        (None, "{x} is wrong.", None): ["package/a.py"],
        (None, "it's", None): ["package/b.html"],
        ("c", "x", None): ["package/b.html"],
        (None, "%(n)s a", "%(n)s (b)"): ["package/b.html"],
    }


def test_script_keeps_translations_and_drops_what_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(messages, "LOCALE", tmp_path)
    monkeypatch.setattr(messages, "PLURALS", {"de": messages.PLURALS["de"]})
    found = {
        messages.Message(None, "a b", None): ["x.py"],
        messages.Message(None, "%(n)d a", "%(n)d b"): ["x.py"],
    }
    monkeypatch.setattr(messages, "extract", lambda: found)
    path = tmp_path / "de" / "LC_MESSAGES" / "django.po"
    messages.main()
    assert "de: 2 texts, 2 not translated" in capsys.readouterr().out
    written = polib.pofile(str(path))
    written[0].msgstr = "A B"
    written[1].msgstr_plural = {0: "%(n)d A", 1: "%(n)d B"}
    written.append(polib.POEntry(msgid="gone", msgstr="weg"))
    written.save()
    messages.main()
    assert "de: 2 texts, 0 not translated" in capsys.readouterr().out
    assert [strings(entry) for entry in polib.pofile(str(path))] == [
        ["A B"],
        ["%(n)d A", "%(n)d B"],
    ]
    assert path.with_suffix(".mo").read_bytes() == polib.pofile(str(path)).to_binary()
