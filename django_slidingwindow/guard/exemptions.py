"""The setting EXEMPT: clients that are never limited."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from ..conf import NAME, conf, on_change
from ..profiles.user_code import path_of, synchronous
from .addresses import Network
from .identity import load_user
from .proxies import UnknownClientError, client_of, parse_network

if TYPE_CHECKING:
    from django.http import HttpRequest

STAFF = "staff"
"""An entry of EXEMPT: users with `is_staff`. To check it, the user is loaded."""

logger = logging.getLogger("django_slidingwindow")


class Exemptions:
    """The parsed setting EXEMPT."""

    def __init__(
        self,
        networks: Sequence[Network],
        functions: Sequence[Callable[[HttpRequest], Any]],
        staff: bool,
    ) -> None:
        self.networks = networks
        self.functions = functions
        self.staff = staff

    def covers(self, request: HttpRequest) -> str:
        """Return the entry of EXEMPT that exempts a request; "" if there is none.

        An entry that fails exempts nobody.
        """
        network = self._network(request) if self.networks else ""
        if network:
            return network
        for function in self.functions:
            try:
                if function(request):
                    return path_of(function)
            except Exception:
                logger.exception("an exemption failed, so it does not apply: %r", function)
        if self.staff:
            try:
                if getattr(load_user(request), "is_staff", False):
                    return STAFF
            except Exception:
                logger.exception("the user could not be loaded, so nobody is exempt as staff")
        return ""

    @property
    def blocks(self) -> bool:
        """Whether `covers` may block: only networks never do."""
        return bool(self.functions) or self.staff

    def _network(self, request: HttpRequest) -> str:
        """Return the exempt network that has the client's address; "" if there is none.

        A trusted proxy that names no client is not exempt, because it may speak for anybody.
        """
        try:
            client = client_of(request)
        except UnknownClientError:
            return ""
        for network in self.networks:
            if not client.trusted and client.address in network:
                return str(network)
        return ""


@cache
def exemptions() -> Exemptions | None:
    """Return the parsed setting EXEMPT; None if it is empty."""
    networks, functions = [], []
    entries: list[Any] = list(conf.exempt)
    for entry in entries:
        if callable(entry):
            functions.append(synchronous(entry))
        elif not isinstance(entry, str):
            raise ImproperlyConfigured(f"{NAME}['EXEMPT'] has {entry!r}, which is not a string.")
        elif "/" in entry or ":" in entry or entry.replace(".", "").isdigit():
            networks.append(parse_network(entry, "EXEMPT"))
        elif entry != STAFF:
            functions.append(synchronous(import_string(entry)))
    if not entries:
        return None
    return Exemptions(networks, functions, STAFF in entries)


on_change(exemptions.cache_clear)
