"""Parts of the suite: `--quick` for an answer in a minute, `--servers` for a bare machine."""

from __future__ import annotations

import pytest

# What takes long: many processes, whole sites, browsers, other databases, builds.
SLOW_FIXTURES = {"cluster", "sentinels", "log_database", "chromium", "fresh_server"}
SLOW_MODULES: set[str] = set()
# Modules whose tests start programs themselves instead of asking a fixture for them.
STARTING_MODULES: set[str] = set()
SERVER_FIXTURES = SLOW_FIXTURES


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what the options leave out."""
    if config.option.quick:
        kept = [item for item in items if not _uses(item, SLOW_FIXTURES, SLOW_MODULES)]
    elif config.option.servers:
        kept = [item for item in items if _uses(item, SERVER_FIXTURES, STARTING_MODULES)]
    else:
        return
    left = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in left])
    items[:] = kept


def _uses(item: pytest.Item, fixtures: set[str], modules: set[str]) -> bool:
    return item.path.stem in modules or not fixtures.isdisjoint(getattr(item, "fixturenames", ()))
