"""The checks of `check --deploy`: settings for production, and the Redis server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from django.core.checks import ERROR, CheckMessage
from django.core.exceptions import ImproperlyConfigured
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError

from ..conf import conf
from ..core.keys import make_key
from ..policies import Policy
from ..stores.net.async_settings import only_sync
from ..stores.net.settings import ConnectionSettings
from . import catalog, server_catalog
from .aliases import check_alias
from .axes import parts
from .project import Project
from .rights import INSPECTION, command_of, needed, refusals
from .server import Server, address_of, connected, is_cluster, primaries

_OLDEST_VERSION = (6, 2)


def check_all() -> list[CheckMessage]:
    """Return all messages of the checks for `--deploy`."""
    try:
        project = Project.read(conf.user)
    except ImproperlyConfigured:
        return []  # reported by the static checks
    return [*check_settings(project), *check_servers(project)]


def check_settings(project: Project) -> Iterator[CheckMessage]:
    settings = project.conf
    if not settings.enabled:
        yield catalog.SWITCHED_OFF()
    if settings.fallback == "local" and "FALLBACK_PROCESSES" not in project.given:
        yield catalog.ONE_PROCESS()
    if "TRUSTED_PROXIES" not in project.given:
        for profile in project.profiles():
            if "ip" in parts(profile):
                yield catalog.NO_PROXIES(name=profile.name)
                return  # one message is enough


def check_servers(project: Project) -> Iterator[CheckMessage]:
    """Check the Redis servers of the alias. Every command has a time-out."""
    alias = project.conf.cache
    if any(message.level >= ERROR for message in check_alias(project)):
        return
    try:
        servers = primaries(alias)
    except (RedisError, OSError) as error:
        yield server_catalog.UNREACHABLE(alias=alias, error=error)
        return
    except ImproperlyConfigured as error:
        yield catalog.BROKEN_ALIAS(alias=alias, error=error.__cause__ or error)
        return
    name = only_sync(servers[0])
    if name is not None:
        yield server_catalog.ONLY_SYNC(alias=alias, name=name)
    for settings in servers:
        yield from _check_server(project, alias, settings)


def _check_server(
    project: Project, alias: str, settings: ConnectionSettings
) -> Iterator[CheckMessage]:
    try:
        with connected(settings) as server:
            yield from check_facts(alias, server)
            yield from check_rights(project, alias, server)
    except AuthenticationError as error:
        yield server_catalog.LOGIN_REFUSED(alias=alias, server=address_of(settings), error=error)
    except NoPermissionError as error:
        # Raised while connecting: by SELECT, or by CLIENT SETNAME.
        command = command_of(error)
        yield server_catalog.MISSING_COMMANDS(
            alias=alias, server=address_of(settings), commands=command
        )
    except (RedisError, OSError) as error:
        yield server_catalog.UNREACHABLE(alias=alias, error=error)


def check_facts(alias: str, server: Server) -> Iterator[CheckMessage]:
    """Check what INFO reports: version, role and eviction policy."""
    info = server.info()
    if info is None:
        yield server_catalog.NO_INFO(alias=alias, server=server.name)
        return
    version = info.get("redis_version", "")
    if _major_minor(version) < _OLDEST_VERSION:
        yield server_catalog.TOO_OLD(server=server.name, version=version)
    if info.get("role") == "slave":
        yield server_catalog.REPLICA(server=server.name)
    yield from _check_eviction(server, info)


def _check_eviction(server: Server, info: Mapping[str, str]) -> Iterator[CheckMessage]:
    policy = info.get("maxmemory_policy", "noeviction")
    # Without maxmemory, Redis evicts nothing.
    if policy != "noeviction" and info.get("maxmemory", "0") != "0":
        yield server_catalog.EVICTION(server=server.name, policy=policy)


def check_rights(project: Project, alias: str, server: Server) -> Iterator[CheckMessage]:
    """Check the rights of the alias's user, without running the commands."""
    prefix = project.conf.prefix
    key = make_key(prefix, "check", "rights", "deploy", Policy(limit=1, window=1))
    commands = needed(project.algorithms(), cluster=is_cluster(alias))
    found = refusals(server, commands, key)
    if found is None:
        yield server_catalog.NO_REHEARSAL(alias=alias, server=server.name)
        return
    if found.commands:
        yield server_catalog.MISSING_COMMANDS(
            alias=alias, server=server.name, commands=", ".join(found.commands)
        )
    if found.keys:
        yield server_catalog.MISSING_KEYS(alias=alias, server=server.name, pattern=f"{prefix}:*")
    others = {name: INSPECTION[name] for name in INSPECTION if name not in commands}
    extra = refusals(server, others, key)
    if extra is not None and extra.commands:
        yield server_catalog.NO_INSPECTION(
            alias=alias, server=server.name, commands=", ".join(extra.commands)
        )


def _major_minor(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])
