"""The names of the views in the project's URLconf."""

from __future__ import annotations

from collections.abc import Iterator

from django.urls import URLPattern, URLResolver, get_resolver


def view_names() -> frozenset[str] | None:
    """Return the names of all views with their namespaces; None if the URLconf cannot be imported.

    This imports all views, as Django's own checks do. A view without a name has an empty one.
    """
    try:
        return frozenset(_names(get_resolver(), ()))
    except Exception:  # noqa: BLE001 -- Django itself reports a URLconf that cannot be imported
        return None


def _names(resolver: URLResolver, namespaces: tuple[str, ...]) -> Iterator[str]:
    for pattern in resolver.url_patterns:
        if isinstance(pattern, URLPattern):
            yield ":".join([*namespaces, pattern.name or ""])
        else:
            inner = (*namespaces, pattern.namespace) if pattern.namespace else namespaces
            yield from _names(pattern, inner)
