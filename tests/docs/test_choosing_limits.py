"""docs/choosing-limits.md shows the real output of its commands and the log of its script."""

from __future__ import annotations

import gzip
import io
import shlex
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from django.core.management import call_command
from django.test import override_settings

from tests.support.docs_pages import DOCS, ROOT, Block, blocks, pages

PAGE = "docs/choosing-limits.md"
LOG = "docs/samples/access.log.gz"


@pytest.mark.parametrize("block", blocks(PAGE, "console"), ids=str)
def test_commands_print_what_the_page_shows(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    typed, shown = block.code.split("\n", 1)
    assert typed.startswith(f"$ python manage.py slidingwindow replay {LOG} ")
    printed = io.StringIO()
    with override_settings(SLIDING_WINDOW={}):
        call_command(*shlex.split(typed)[3:], stdout=printed)
    assert printed.getvalue() == shown


def test_sample_log_is_up_to_date() -> None:
    spec = spec_from_file_location("make_log", DOCS / "samples" / "make_log.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    with gzip.open(ROOT / LOG, "rt") as log:
        kept = log.read().splitlines()
    assert kept == list(script.lines())
    assert f"{len(kept):,} lines" in pages()[PAGE]
