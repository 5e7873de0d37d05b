"""The names in the docs are exactly those of the code, and no text has unclear words."""

from __future__ import annotations

import ast
import configparser
import importlib
import inspect
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from django.dispatch import Signal
from django.test import override_settings

import django_slidingwindow
from django_slidingwindow import decisions, signals
from django_slidingwindow.checks.catalog import CATALOG
from django_slidingwindow.checks.values import known_keys
from django_slidingwindow.conf import Conf
from django_slidingwindow.contrib.metrics import METRICS
from django_slidingwindow.decisions import Decision
from django_slidingwindow.guard import identity, override_snapshot, rules
from django_slidingwindow.http.headers import STYLES
from django_slidingwindow.policies import ALGORITHMS, LETTERS
from django_slidingwindow.registry import BUILT_IN, read_profile
from tests.support.docs_pages import DOCS, ROOT, code_in, pages, prose, table
from tests.support.package_modules import LAYERS

EVERYTHING = "\n".join(pages().values())
SPANS = {
    span for page in pages() for span in re.findall(r"`([^`]+)`", prose(page).replace("\n", " "))
}

# Words in capitals that are not keys of SLIDING_WINDOW.
OF_DJANGO = set(
    "SLIDING_WINDOW INSTALLED_APPS MIDDLEWARE CACHES CACHE LOCATION OPTIONS BACKEND SECRET_KEY"
    " USERNAME PASSWORD SOCKET_TIMEOUT SILENCED_SYSTEM_CHECKS TEMPLATES LOGGING DEBUG"
    " SESSION_ENGINE KEY_PREFIX VERSION KEY_FUNCTION REDIS_CLIENT_CLASS"
    " SOCKET_CONNECT_TIMEOUT CONNECTION_POOL_CLASS LANGUAGE_CODE LOCALE_PATHS"
    " ALLOWED_HOSTS".split()
)
OF_PEERS = set(
    "RATELIMIT_ENABLE RATELIMIT_USE_CACHE RATELIMIT_IP_META_KEY RATELIMIT_MIDDLEWARE NUM_PROXIES"
    " DEFAULT_THROTTLE_CLASSES DEFAULT_THROTTLE_RATES DEBUG_TOOLBAR_PANELS".split()
)
OF_SHELLS = set("PYTHON TEST_REDIS_SERVER PROMETHEUS_MULTIPROC_DIR REDIS_URL CI".split())
OF_CODE = {"SCRIPT_VERSION", "PLURALS"}
# Commands and errors of Redis, and methods of HTTP.
OF_PROTOCOLS = set(
    "EVALSHA EVAL UNLINK TIME PEXPIRE GETRANGE STRLEN SETRANGE SET DEL GET HEAD POST ZADD ZCARD"
    " ZCOUNT ZRANGE ZREVRANGE ZREVRANGEBYSCORE ZREM ZREMRANGEBYRANK ZREMRANGEBYSCORE HGETALL"
    " HGET HSET"
    " BUSY CLUSTERDOWN LOADING MASTERDOWN MISCONF NOAUTH NOPERM NOREPLICAS OOM READONLY WRONGPASS"
    " WRONGTYPE HDEL NOSCRIPT MOVED ASK INFO MULTI EXEC DISCARD SCAN KEY TRYAGAIN DBSIZE PTTL PING"
    " FLUSHALL OOM READONLY LOADING NOREPLICAS MASTERDOWN MISCONF BUSY NOPERM WRONGTYPE"
    " CLUSTERDOWN".split()
)

# Words and phrases that need a second reading.
UNCLEAR = re.compile(
    r"\b(whom|whoever|so many|of which|such as are|what is known of|very same|reckons?)\b"
    r"|(?<![a-z])told(?![a-z])",
    re.IGNORECASE,
)
PROSE = (".md", ".yml", ".lua", ".html", ".css", ".js", ".sh", ".toml", ".ini", ".cfg")
FOLDERS = ("django_slidingwindow", "tests", "docs", "benchmarks", "scripts", "example_project")

# Names that the design promises to users.
PROMISED = {
    "decorators": "rate_limit rate_limit_exempt",
    "middleware": "RateLimitMiddleware",
    "limits": "check acheck peek apeek reset areset acquire aacquire refund arefund retry_delay",
    "contrib.drf": "ProfileThrottle",
    "contrib.ninja": "ProfileThrottle",
    "contrib.prometheus": "install",
    "contrib.opentelemetry": "install",
    "cluster": "ClusterConnectionFactory",
    "signals": "request_limited store_degraded store_recovered",
    "models": "Rejection",
}


def settings_rows() -> dict[str, str]:
    """Return the documented default of each setting."""
    text = pages()["docs/settings.md"]
    rows = re.findall(r"^\| `([A-Z0-9_]+)` \| `(.+?)` \| ", text, re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a key has two rows"
    return dict(rows)


def test_rows_are_the_settings() -> None:
    assert set(settings_rows()) == known_keys()


@pytest.mark.parametrize("key", sorted(known_keys()))
def test_default_of_a_setting_is_the_documented_one(key: str) -> None:
    documented = ast.literal_eval(settings_rows()[key])
    if key == "HASH_KEY":
        assert documented is None
        return
    with override_settings(SLIDING_WINDOW={}):
        assert getattr(Conf(), key.lower()) == documented


def test_words_in_capitals_are_known_names() -> None:
    words = {span for span in SPANS if re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", span)}
    checks = set(CATALOG)
    others = OF_DJANGO | OF_PEERS | OF_SHELLS | OF_PROTOCOLS | OF_CODE | checks
    # Words of one letter or with a dot are placeholders.
    unknown = {word for word in words - known_keys() - others if len(word) > 1}
    assert unknown == set()


def test_keys_in_dicts_of_settings_are_known() -> None:
    """Also in prose: readers will type `"LOG_CLIENT": True`."""
    found = {key for span in SPANS for key in re.findall(r"^\"([A-Z][A-Z0-9_]+)\":", span)}
    assert found <= known_keys() | {"BACKEND", "LOCATION"}
    assert "LOG_CLIENT" in found


def test_built_in_profiles_are_the_documented_ones() -> None:
    documented = {}
    units = {"s": 1, "a minute": 60, "a day": 86_400}
    for name, axis, policy in table("docs/profiles.md", "Profiles and limits"):
        number, window = re.fullmatch(r"([\d,]+) (?:in 60 )?(.+)", policy).groups()
        seconds = 60 if "in 60" in policy else units[window]
        documented[code_in(name)[0]] = (code_in(axis)[0], int(number.replace(",", "")), seconds)
    built_in = {}
    for name, config in BUILT_IN.items():
        (policy,) = read_profile(name, config).policies
        built_in[name] = (config["axis"], policy.limit, policy.window)
    assert documented == built_in


def test_every_key_of_a_rule_has_its_row() -> None:
    rows = table("docs/profiles.md", "The middleware")
    assert {key for row in rows for key in code_in(row[0])} == rules.KEYS


def test_every_axis_has_its_row() -> None:
    rows = table("docs/identities.md", "Identities and security")
    axes = [axis for row in rows for axis in code_in(row[0])]
    assert axes == [*identity.BUILT_IN, "header:X-API-Key"]


def test_algorithms_their_letters_and_header_styles_are_documented() -> None:
    rows = table("docs/algorithms.md", "Algorithms")
    assert [code_in(row[0])[0] for row in rows] == list(ALGORITHMS)
    for name, letter in LETTERS.items():
        assert f"`{letter}` {name}" in pages()["docs/architecture.md"]
    assert [code_in(row[0])[0] for row in table("docs/headers.md", "Headers")] == list(STYLES)


def test_check_ids_are_those_of_the_code() -> None:
    named = set(re.findall(r"\b([EWI]\d{3})\b", EVERYTHING))
    assert named == set(CATALOG)


def test_metrics_are_those_of_the_code() -> None:
    names = {metric.prometheus_name for metric in METRICS}
    named = set(re.findall(r"\bslidingwindow_[a-z_]+", EVERYTHING)) - {"slidingwindow_"}
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in named} == names
    assert {metric.otel_name for metric in METRICS} <= SPANS


def sub_commands() -> set[str]:
    command = load_command_class(get_commands()["slidingwindow"], "slidingwindow")
    parser = command.create_parser("manage.py", "slidingwindow")
    (actions,) = [a for a in parser._actions if getattr(a, "choices", None) and a.dest == "action"]
    return set(actions.choices)


def test_sub_commands_are_those_of_the_code() -> None:
    named = set(re.findall(r"(?:manage\.py|`) ?slidingwindow ([a-z]+)", EVERYTHING))
    headings = set(re.findall(r"^## ([a-z]+)$", pages()["docs/commands.md"], re.MULTILINE))
    assert named <= headings == sub_commands()


def test_signals_and_their_arguments_are_those_of_the_code() -> None:
    found = {name for name, value in vars(signals).items() if isinstance(value, Signal)}
    rows = table("docs/refusals.md", "Signals")
    assert {code_in(row[0])[0] for row in rows} == found
    source = inspect.getsource(signals)
    for name, arguments, _ in rows:
        docstring = source.split(f"{code_in(name)[0]} = Signal()")[1].split('"""')[1]
        assert all(re.search(rf"\b{word}\b", docstring) for word in code_in(arguments))


def test_fields_reasons_and_sources_of_a_decision_are_those_of_the_code() -> None:
    rows = dict(map(tuple, table("docs/refusals.md", "The decision")))
    named = [name for cell in rows for name in code_in(cell)]
    assert named == [*Decision._fields[:-1], "verdicts", "receipt", "override"]
    values = vars(decisions)
    reasons = (
        "ALLOWED UNLIMITED OBSERVED LIMIT FALLBACK DENY IDENTITY_ERROR EXEMPT BLOCK PENALTY".split()
    )
    sources = "REDIS LEASE SHIELD DEFERRED LOCAL ALLOW DENY OVERRIDE".split()
    assert code_in(rows["`reason`"]) == [values[name] for name in reasons]
    assert code_in(rows["`source`"]) == [values[name] for name in sources]
    assert code_in(rows["`override`"]) == [*override_snapshot.ACTIONS]


def public_names() -> dict[str, list[str]]:
    rows = table("docs/api.md", "Public names")
    return {code_in(row[0])[0]: code_in(row[1]) for row in rows}


def test_public_names_can_be_imported() -> None:
    for module, names in public_names().items():
        if module == "manage.py slidingwindow":
            assert set(names) == sub_commands()
            continue
        found: Any = importlib.import_module(module)
        assert all(hasattr(found, name) for name in names), module


def test_promised_names_are_public_names() -> None:
    documented = public_names()
    for module, names in PROMISED.items():
        assert set(names.split()) <= set(documented[f"{django_slidingwindow.__name__}.{module}"])


def test_names_that_the_docs_import_are_public_names() -> None:
    """Readers copy these imports, so they must not change without notice."""
    documented = public_names()
    pattern = r"^from (django_slidingwindow[\w.]*) import (.+)$"
    imports = re.findall(pattern, EVERYTHING, re.MULTILINE)
    assert imports
    for module, names in imports:
        for name in names.split(","):
            full = f"{module}.{name.strip()}"
            assert full in documented or name.strip() in documented.get(module, [])


def test_layers_are_those_of_the_code() -> None:
    rows = table("docs/architecture.md", "Layers")
    assert [set(code_in(row[1])) for row in rows] == LAYERS


def test_extras_are_those_of_the_package() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = set(config["options.extras_require"])
    named = set(re.findall(r"django_slidingwindow\[(\w+)\]", EVERYTHING))
    # These two are for development.
    assert named == extras - {"test", "demo"}


def test_version_is_defined_once_and_heads_the_changelog() -> None:
    version = django_slidingwindow.__version__
    first = re.search(r"^## (\S+)", pages()["CHANGELOG.md"], re.MULTILINE)
    assert first is not None
    assert first[1] == version
    files = [ROOT / "setup.cfg", ROOT / "pyproject.toml", DOCS / "conf.py", ROOT / "README.md"]
    assert not [path.name for path in files if version in Path(path).read_text()]


def sources() -> list[Path]:
    """Return the files of the project that people write and read, except for translations."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    found += [path for path in ROOT.glob("*") if path.suffix in PROSE]
    found += (ROOT / ".github").rglob("*.yml")
    return sorted(
        path
        for path in found
        if path.suffix in (".py", *PROSE) and "locale" not in path.parts and path != Path(__file__)
    )


def read_by_people(source: str) -> Iterator[tuple[int, str]]:
    """Yield the comments, the strings and the names of functions and classes of Python code."""
    defined = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if defined or name in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            yield token.start[0], token.string
        defined = token.string in ("def", "class")


def unclear(path: Path) -> Iterator[str]:
    text = path.read_text()
    texts = read_by_people(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1)
    for line, words in texts:
        for match in UNCLEAR.finditer(" ".join(words.split())):
            yield f"{path.relative_to(ROOT)}:{line}: {match[0]}"


def test_no_line_has_an_unclear_word() -> None:
    found = sources()
    assert len(found) > 500
    assert [place for path in found for place in unclear(path)] == []


def test_unclear_words_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.docs.test_words.ROOT", tmp_path)
    path = tmp_path / "some.py"
    path.write_text(
        'def test_it_is_told():\n    """Return so\n    many."""\n    told = 1  # for whom\n'
    )
    assert list(unclear(path)) == ["some.py:1: told", "some.py:2: so many", "some.py:4: whom"]
