from __future__ import annotations

from django_slidingwindow.core.caching import BoundedCache


def test_cache_starts_from_empty_when_it_is_full() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    assert [cache.keep(name, number) for number, name in enumerate("abc")] == [0, 1, 2]
    assert cache == {"c": 2}
