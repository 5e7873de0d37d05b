"""A trivial view for each contender and case, at /<contender>/<case>.

All of them share one route. Django tries its routes in turn, so a view at the end of a long list
would seem slower than the first one.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from django.urls import path

from benchmarks.contenders.base import view_contenders


def _view() -> Any:
    def view(request: Any) -> HttpResponse:
        return HttpResponse(b"ok")

    return view


def _async_view() -> Any:
    async def view(request: Any) -> HttpResponse:
        return HttpResponse(b"ok")

    return view


VIEWS = {
    (contender.slug, case.name): contender.limit(
        case, _async_view() if contender.is_async else _view()
    )
    for contender in view_contenders()
    for case in contender.cases
}


def dispatch(request: Any, slug: str, case: str) -> Any:
    return VIEWS[slug, case](request)


async def dispatch_async(request: Any, slug: str, case: str) -> Any:
    return await VIEWS[slug, case](request)


urlpatterns = [
    path("<str:slug>/<str:case>", dispatch),
    path("async/<str:slug>/<str:case>", dispatch_async),
]
