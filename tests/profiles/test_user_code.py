"""Sync and async code call sync and async functions of a project."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from asgiref.sync import markcoroutinefunction

from django_slidingwindow.profiles.user_code import acall, is_async, path_of, synchronous


def plain(word: str) -> str:
    return word


async def awaited(word: str) -> str:
    return word


class Plain:
    def __call__(self, word: str) -> str:
        return word


class Awaited:
    async def __call__(self, word: str) -> str:
        return word


class Unhashable(Awaited):
    __hash__ = None  # type: ignore[assignment]


class Bare:
    """An object without weak references."""

    __slots__ = ()

    async def __call__(self, word: str) -> str:
        return word


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (plain, False),
        (awaited, True),
        (partial(plain), False),
        (partial(awaited), True),
        (Plain(), False),
        (Awaited(), True),
        (Plain().__call__, False),
        (Awaited().__call__, True),
        (Bare(), True),
        (Unhashable(), True),
        (markcoroutinefunction(lambda word: awaited(word)), True),
        (len, False),
    ],
    ids=lambda value: getattr(value, "__qualname__", type(value).__name__),
)
def test_is_async_finds_every_kind_of_async_callable(
    function: Callable[..., Any], found: bool
) -> None:
    assert is_async(function) is found


@pytest.mark.parametrize("function", [plain, awaited, Plain(), Bare(), Unhashable()])
def test_sync_and_async_functions_are_called_from_sync_and_async_code(
    function: Callable[..., Any],
) -> None:
    assert synchronous(function)("word") == "word"
    assert asyncio.run(acall(function, "word")) == "word"


def test_sync_function_is_used_as_it_is() -> None:
    assert synchronous(plain) is plain


@pytest.mark.parametrize(
    ("function", "path"), [(plain, "plain"), (awaited, "awaited"), (Awaited(), "Awaited")]
)
def test_path_of_names_the_function_of_the_project(function: Callable[..., Any], path: str) -> None:
    assert path_of(synchronous(function)) == f"{__name__}.{path}"
