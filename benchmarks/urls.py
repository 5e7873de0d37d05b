"""A trivial view for each contender and case, at /<contender>/<case>."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.urls import path

from benchmarks.contenders.base import CASES, view_contenders


def _view() -> Any:
    def view(request: Any) -> HttpResponse:
        return HttpResponse(b"ok")

    return view


def _async_view() -> Any:
    async def view(request: Any) -> HttpResponse:
        return HttpResponse(b"ok")

    return view


urlpatterns = [
    path(
        f"{contender.slug}/{case.name}",
        contender.limit(case, _async_view() if contender.is_async else _view()),
    )
    for contender in view_contenders()
    for case in CASES
]
