"""Writes the sample log of docs/choosing-limits.md: python docs/samples/make_log.py

Two hours of a shop, in the combined format. All of it is invented, from a fixed seed, with
addresses that are reserved for documentation:

- 240 shoppers. Each looks at some pages, and a page loads up to six items of the API at once.
- An office: thirty people behind one address.
- An app on telephones of 40 customers, which asks for twelve things whenever it is opened.
- A monitor that asks for /health/ every ten seconds.
- A scraper that asks for two prices a second for twenty minutes, from one IPv6 network, with
  another address for each request.
- A script that tries passwords: fifteen a minute for half an hour.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random

LOG = Path(__file__).with_name("access.log.gz")
START = datetime(2026, 11, 17, 8, tzinfo=timezone.utc)
SECONDS = 2 * 3_600

Request = tuple[float, str, str, int, str]
"""Second, address, request line without protocol, status, and agent."""


def shopper(random: Random, address: str, agent: str = "Firefox") -> Iterator[Request]:
    at = random.random() * (SECONDS - 900)
    for _ in range(1 + int(random.random() * 12)):
        yield at, address, f"GET /products/{int(random.random() * 500)}/", 200, agent
        for _ in range(int(random.random() * 7)):
            at += random.random() * 0.4
            yield at, address, f"GET /api/prices/{int(random.random() * 500)}/", 200, agent
        at += 4 + random.random() * 50


def office(random: Random) -> Iterator[Request]:
    for _ in range(30):
        yield from shopper(random, "203.0.113.20", "Edge")


def app(random: Random, address: str) -> Iterator[Request]:
    at = random.random() * 2_000
    while at < SECONDS - 60:
        for _ in range(12):
            yield at, address, f"GET /api/orders/{int(random.random() * 90)}/", 200, "ShopApp/3"
            at += random.random() * 0.15
        at += 1_200 + random.random() * 3_000


def monitor() -> Iterator[Request]:
    for i in range(SECONDS // 10):
        yield i * 10.0, "192.0.2.10", "GET /health/", 200, "monitor"


def scraper(random: Random) -> Iterator[Request]:
    for i in range(2 * 1_200):
        address = f"2001:db8:bad::{int(random.random() * 65_535) + 1:x}"
        yield 2_440 + i / 2, address, f"GET /api/prices/{i}/", 200, "python"


def guesser(random: Random) -> Iterator[Request]:
    for i in range(15 * 30):
        yield 4_500 + 4 * i + random.random() * 3, "192.0.2.66", "POST /login/", 401, "curl"


def requests() -> list[Request]:
    random = Random(2026)  # noqa: S311 -- nothing secret is made
    found: list[Request] = [*office(random), *monitor(), *scraper(random), *guesser(random)]
    for i in range(240):
        found += shopper(random, f"198.51.100.{i + 1}")
    for i in range(40):
        found += app(random, f"203.0.113.{100 + i}")
    return sorted(found)


def lines() -> Iterator[str]:
    """Yield the lines of the log, one of them damaged as by a full disk."""
    for number, (second, address, line, status, agent) in enumerate(requests()):
        stamp = (START + timedelta(seconds=int(second))).strftime("%d/%b/%Y:%H:%M:%S +0000")
        text = f'{address} - - [{stamp}] "{line} HTTP/1.1" {status} 512 "-" "{agent}"'
        yield text[:36] if number == 1_000 else text


def main() -> None:
    text = "".join(f"{line}\n" for line in lines())
    LOG.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
