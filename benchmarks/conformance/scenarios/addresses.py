"""Scenarios about which client a limit counts."""

from __future__ import annotations

from ..lab import Lab
from ..model import Answer, Cell, Question, Rate, count_admitted, judged

LIMIT = 5
RATE = Rate(limit=LIMIT, window=3_600)
PROXY = "192.0.2.254"


def spoofed(lab: Lab) -> Cell:
    """Send five requests above the limit, each with another forged address."""
    client = lab.client()
    with lab.host(RATE, patient=True) as host:
        host.ask([Question(client)] * LIMIT)
        answers = host.ask([Question(client, f"198.51.100.{n}") for n in range(1, 6)])
    return _passed(answers)


def proxy(lab: Lab) -> Cell:
    """Send the same through a proxy, which appends the address that it sees."""
    seen = "203.0.113.7"
    with lab.host(RATE, proxy=PROXY, patient=True) as host:
        host.ask([Question(PROXY, seen)] * LIMIT)
        answers = host.ask([Question(PROXY, f"198.51.100.{n}, {seen}") for n in range(1, 6)])
        other = count_admitted(host.ask([Question(PROXY, "203.0.113.8")]))
    if not other:
        return judged(False, "one window for all")
    return _passed(answers)


def subnet(lab: Lab) -> Cell:
    """Send five requests above the limit, each from another address of one /64."""
    with lab.host(RATE, patient=True) as host:
        host.ask([Question("2001:db8:1:2::1")] * LIMIT)
        answers = host.ask([Question(f"2001:db8:1:2::{n}") for n in range(2, 7)])
    return _passed(answers)


def mapped(lab: Lab) -> Cell:
    """Ask as two IPv4-mapped clients, and as the first of them by its plain address."""
    with lab.host(RATE, patient=True) as host:
        host.ask([Question("::ffff:192.0.2.1")] * LIMIT)
        other = count_admitted(host.ask([Question("::ffff:192.0.2.2")]))
        same = count_admitted(host.ask([Question("192.0.2.1")]))
    if not other:
        return judged(False, "one window for all")
    if same:
        return judged(False, "two windows per client")
    return judged(True, "one window per client")


def _passed(answers: list[Answer]) -> Cell:
    passed = count_admitted(answers)
    return judged(passed == 0, f"{passed} of {len(answers)}", passed=passed)
