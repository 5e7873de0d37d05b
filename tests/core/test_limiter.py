"""Claims in, a decision out, whatever the store does: fallback, breaker, shield, several calls."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from django_slidingwindow import decisions
from django_slidingwindow.core.breaker import CLOSED, HALF_OPEN, OPEN
from django_slidingwindow.core.callbacks import Callbacks
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.shield import Shield
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.exceptions import StoreError
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.memory import MemoryStore
from django_slidingwindow.stores.protocol import Evaluate, Refund, Reply, WindowRules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from django_slidingwindow.decisions import Decision
    from django_slidingwindow.stores.protocol import Call

AWAY = StoreError("it is away")
SPOILED = StoreError("WRONGTYPE of this one key", outage=False)


class Store(MemoryStore):
    """A store that can be away, in which each identifier is a node of its own if `split`."""

    source = decisions.REDIS

    def __init__(self, *, split: bool = False) -> None:
        super().__init__()
        self.split = split
        self.calls: list[Call] = []
        self.fails: Callable[[Call], StoreError | None] = lambda call: None

    def run(self, call: Call) -> Any:
        self.calls.append(call)
        error = self.fails(call)
        if error is not None:
            raise error
        return super().run(call)

    def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Reply:
        reply: Reply = self.run(Evaluate(keys, rules, writes=True))
        return reply

    async def acharge(self, keys: tuple[str, ...], rules: WindowRules) -> Reply:
        await asyncio.sleep(0)
        return self.charge(keys, rules)

    async def arun(self, call: Call) -> Any:
        await asyncio.sleep(0)
        return self.run(call)

    def run_together(self, calls: Sequence[Call]) -> list[list[int] | StoreError]:
        return [self._run_or_error(call) for call in calls]

    async def arun_together(self, calls: Sequence[Call]) -> list[list[int] | StoreError]:
        await asyncio.sleep(0)
        return self.run_together(calls)

    def _run_or_error(self, call: Call) -> list[int] | StoreError:
        try:
            return self.run(call)
        except StoreError as error:
            return error

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        if not self.split:
            return None
        nodes = [self.node(key) for key in keys]
        return [[i for i, of in enumerate(nodes) if of == node] for node in dict.fromkeys(nodes)]

    def node(self, key: str) -> str:
        return key.partition("{")[2].partition("}")[0] if self.split else ""

    def nodes(self) -> list[str]:
        return ["a", "b", "c"] if self.split else [""]


class Recorder:
    """Record the calls of callbacks."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.callbacks = Callbacks(
            checked=lambda decision, seconds, error: self.events.append(("checked", seconds)),
            degraded=lambda error: self.events.append(("degraded", str(error))),
            recovered=lambda seconds: self.events.append(("recovered", seconds)),
            failed=lambda error: self.events.append(("failed", str(error))),
        )


def profile(name: str = "p", limit: int = 3, window: float = 3600, **options: Any) -> Profile:
    algorithm = options.pop("algorithm", "compact")
    policy = Policy(limit=limit, window=window, algorithm=algorithm)
    return Profile(name=name, axis="tenant", policies=(policy,), **options)


def profile_check(identifier: str = "a", cost: int = 1, **options: Any) -> ProfileCheck:
    of = profile(**options)
    return ProfileCheck(of, identifier, of.policies, cost)


def outcomes(answers: Sequence[Decision]) -> list[tuple[bool, str]]:
    return [(answer.allowed, answer.source) for answer in answers]


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def split() -> Store:
    return Store(split=True)


def away(store: Store) -> None:
    store.fails = lambda call: AWAY


def recovers(limiter: Limiter, store: Store) -> None:
    """Lets the store answer, and the probe be due."""
    store.fails = lambda call: None
    for breaker in limiter.breaker.open.values():
        breaker._probe_at = 0.0


def overtaken(
    store: Store,
    other: Limiter,
    number: int,
    then: Callable[[Call], StoreError | None] = lambda call: None,
) -> None:
    """Before the call of that number another takes the last hit of `b`; `then` says what fails."""

    def fails(call: Call) -> None:
        if len(store.calls) == number:
            store.fails = then
            other.charge(other.windows([profile_check("b", limit=1)]))

    store.fails = fails


class TestOutage:
    def test_store_is_not_asked_after_three_failures(self, store: Store) -> None:
        limiter = Limiter(store)
        away(store)
        answers = [limiter.charge(limiter.windows([profile_check(limit=10)])) for _ in range(8)]
        assert {source for _, source in outcomes(answers)} == {decisions.LOCAL}
        assert len(store.calls) == 3
        assert limiter.breaker.state == OPEN

    def test_transitions_are_reported_once(self, store: Store) -> None:
        recorder = Recorder()
        limiter = Limiter(store, callbacks=recorder.callbacks)
        away(store)
        for _ in range(8):
            limiter.charge(limiter.windows([profile_check()]))
        recovers(limiter, store)
        for _ in range(3):
            limiter.charge(limiter.windows([profile_check()]))
        others = [event for event in recorder.events if event[0] != "checked"]
        assert [name for name, _ in others] == ["degraded", "recovered"]
        assert others[0][1] == "it is away"

    def test_callback_gets_the_seconds_of_the_store_if_it_was_asked(self, store: Store) -> None:
        recorder = Recorder()
        limiter = Limiter(store, callbacks=recorder.callbacks)
        away(store)
        for _ in range(4):
            limiter.charge(limiter.windows([profile_check()]))
        took = [seconds for name, seconds in recorder.events if name == "checked"]
        assert [seconds is None for seconds in took] == [False, False, False, True]

    def test_callbacks_are_optional(self, store: Store) -> None:
        limiter = Limiter(store)
        away(store)
        for _ in range(3):
            limiter.charge(limiter.windows([profile_check()]))
        recovers(limiter, store)
        assert limiter.charge(limiter.windows([profile_check()])).source == decisions.REDIS
        assert limiter.breaker.state == CLOSED

    @pytest.mark.parametrize("slots", [1, 2])
    def test_fallback_counts_on_while_a_store_that_cannot_write_refuses(self, slots: int) -> None:
        """A full disk is such an outage. A client that is refused must not lift others' limits."""
        store = Store(split=slots > 1)
        limiter = Limiter(store)

        # The second slot is on the node that cannot write.
        checks = [profile_check("a", limit=3), profile_check("b", limit=100, name="wide")]
        full = limiter.windows(checks[:slots])
        for _ in range(3):
            assert limiter.charge(full).source == decisions.REDIS
        admits = limiter.windows([profile_check("b", limit=3)])

        def cannot_write(call: Call) -> StoreError | None:
            key = call.keys[0]
            return AWAY if getattr(call, "writes", True) and "{a}" not in key else None

        store.fails = cannot_write
        local = []
        for _ in range(8):
            for _ in range(3):
                local.append(limiter.charge(admits))
            for breaker in limiter.breaker.open.values():
                breaker._probe_at = 0.0
            assert not limiter.charge(full).allowed
        assert {decision.source for decision in local} == {decisions.LOCAL}
        assert sum(decision.allowed for decision in local) == 3

    def test_error_of_one_call_is_reported_and_is_not_an_outage(self, store: Store) -> None:
        recorder = Recorder()
        limiter = Limiter(store, callbacks=recorder.callbacks)
        store.fails = lambda call: SPOILED
        answers = [limiter.charge(limiter.windows([profile_check(limit=10)])) for _ in range(5)]
        assert {source for _, source in outcomes(answers)} == {decisions.LOCAL}
        assert len(store.calls) == 5
        assert limiter.breaker.state == CLOSED
        assert [event for event in recorder.events if event[0] != "checked"] == [
            ("failed", str(SPOILED))
        ] * 5
        plain = Limiter(store)
        assert plain.charge(plain.windows([profile_check()])).source == decisions.LOCAL

    def test_error_of_one_read_is_reported(self, store: Store) -> None:
        recorder = Recorder()
        store.fails = lambda call: SPOILED
        limiter = Limiter(store, callbacks=recorder.callbacks)
        assert limiter.peek(limiter.windows([profile_check()])).source == decisions.LOCAL
        assert recorder.events == [("failed", str(SPOILED))]

    def test_other_exceptions_are_raised_and_are_not_failures(self, store: Store) -> None:
        limiter = Limiter(store)

        def interrupted(call: Call) -> StoreError | None:
            raise KeyboardInterrupt

        store.fails = interrupted
        for _ in range(5):
            with pytest.raises(KeyboardInterrupt):
                limiter.charge(limiter.windows([profile_check()]))
            with pytest.raises(KeyboardInterrupt):
                asyncio.run(limiter.acharge(limiter.windows([profile_check()])))
        assert limiter.breaker.state == CLOSED

    def test_failed_peek_counts_but_a_successful_one_proves_nothing(self, store: Store) -> None:
        limiter = Limiter(store)
        store.fails = lambda call: AWAY if isinstance(call, Evaluate) and call.writes else None
        for _ in range(3):
            assert limiter.peek(limiter.windows([profile_check()])).source == decisions.REDIS
            limiter.charge(limiter.windows([profile_check()]))
        assert limiter.breaker.state == OPEN
        store.fails = lambda call: SPOILED
        other = Limiter(store)
        assert other.peek(other.windows([profile_check()])).source == decisions.LOCAL
        away(store)
        for _ in range(3):
            assert other.peek(other.windows([profile_check()])).source == decisions.LOCAL
        assert other.breaker.state == OPEN

    def test_peek_is_not_a_probe(self, store: Store) -> None:
        limiter = Limiter(store)
        away(store)
        for _ in range(3):
            limiter.charge(limiter.windows([profile_check()]))
        recovers(limiter, store)
        assert limiter.peek(limiter.windows([profile_check()])).source == decisions.LOCAL
        assert limiter.charge(limiter.windows([profile_check()])).source == decisions.REDIS

    async def test_probe_that_is_cancelled_leaves_the_next_one_to_another(
        self, store: Store
    ) -> None:
        limiter = Limiter(store)
        away(store)
        for _ in range(3):
            await limiter.acharge(limiter.windows([profile_check()]))
        recovers(limiter, store)
        probe = asyncio.ensure_future(limiter.acharge(limiter.windows([profile_check()])))
        await asyncio.sleep(0)
        assert limiter.breaker.state == HALF_OPEN
        probe.cancel()
        with pytest.raises(asyncio.CancelledError):
            await probe
        assert limiter.breaker.state == OPEN
        assert (await limiter.acharge(limiter.windows([profile_check()]))).source == decisions.REDIS

    def test_local_windows_are_emptied_after_recovery(self, store: Store) -> None:
        limiter = Limiter(store)
        away(store)
        for _ in range(4):
            limiter.charge(limiter.windows([profile_check()]))
        assert len(limiter.local) == 1
        recovers(limiter, store)
        limiter.charge(limiter.windows([profile_check()]))
        assert len(limiter.local) == 0

    def test_refund_of_a_local_charge_is_local(self, store: Store) -> None:
        limiter = Limiter(store)
        away(store)
        decision = limiter.charge(limiter.windows([profile_check()]))
        assert limiter.refund(decision) == 1
        assert limiter.refund(decision) == 0, "a receipt works once"
        assert limiter.charge(limiter.windows([profile_check()])).remaining == 2

    def test_refund_of_a_charge_fails_silently_and_counts_as_a_failure(self, store: Store) -> None:
        limiter = Limiter(store)
        charged = [limiter.charge(limiter.windows([profile_check(limit=10)])) for _ in range(5)]
        away(store)
        asked = len(store.calls)
        assert [limiter.refund(decision) for decision in charged] == [0] * 5
        assert len(store.calls) == asked + 3
        assert limiter.breaker.state == OPEN

    def test_reset_raises_during_an_outage(self, store: Store) -> None:
        limiter = Limiter(store, shield=Shield(60))
        for _ in range(4):
            limiter.charge(limiter.windows([profile_check()]))
        assert limiter.charge(limiter.windows([profile_check()])).source == decisions.SHIELD
        away(store)
        with pytest.raises(StoreError):
            limiter.reset(limiter.windows([profile_check()]).keys)
        assert limiter.charge(limiter.windows([profile_check()])).source == decisions.LOCAL, (
            "the shield is cleared"
        )


class TestFallback:
    @pytest.mark.parametrize(
        ("limit", "processes", "share"),
        [(10, 1, 10), (10, 3, 3), (10, 10, 1), (10, 11, 1), (0, 4, 0)],
    )
    def test_limit_is_divided_among_the_processes(
        self, limit: int, processes: int, share: int, store: Store
    ) -> None:
        limiter = Limiter(store, processes=processes)
        away(store)
        answers = [
            limiter.charge(limiter.windows([profile_check(limit=limit)])) for _ in range(limit + 2)
        ]
        assert sum(answer.allowed for answer in answers) == share
        assert answers[-1].reason == decisions.FALLBACK
        assert answers[-1].limit == share

    def test_cost_above_the_share_can_pass_later_but_above_the_limit_never(
        self, store: Store
    ) -> None:
        limiter = Limiter(store, processes=5)
        away(store)
        assert (
            limiter.charge(limiter.windows([profile_check(limit=10, cost=3)])).retry_after == 3600
        )
        assert (
            limiter.charge(limiter.windows([profile_check(limit=10, cost=11)])).retry_after is None
        )

    def test_allow_lets_in_and_charges_nothing(self, store: Store) -> None:
        limiter = Limiter(store, fallback="allow")
        away(store)
        answers = [limiter.charge(limiter.windows([profile_check(limit=1)])) for _ in range(5)]
        assert outcomes(answers) == [(True, decisions.ALLOW)] * 5
        assert all(answer.receipt is None for answer in answers)

    def test_deny_refuses_for_a_moment(self, store: Store) -> None:
        limiter = Limiter(store, fallback="deny")
        away(store)
        decision = limiter.charge(limiter.windows([profile_check()]))
        assert outcomes([decision]) == [(False, decisions.DENY)]
        assert decision.reason == decisions.DENY
        assert decision.retry_after == pytest.approx(0.1)

    def test_deny_names_the_window_that_it_did_not_check(self, store: Store) -> None:
        limiter = Limiter(store)
        away(store)
        checks = [profile_check(name=name, fallback=name) for name in ("allow", "deny")]
        windows = limiter.windows(checks)
        assert limiter.charge(windows).key == windows.keys[1]

    @pytest.mark.parametrize(
        ("ways", "outcome"),
        [
            (("deny", "local"), (False, decisions.DENY)),
            (("allow", "deny"), (False, decisions.DENY)),
            (("allow", "local"), (True, decisions.LOCAL)),
            (("allow", "allow"), (True, decisions.ALLOW)),
            ((None, "allow"), (True, decisions.LOCAL)),
        ],
    )
    def test_strictest_of_several_profiles_decides(
        self, ways: tuple[str | None, ...], outcome: tuple[bool, str], store: Store
    ) -> None:
        limiter = Limiter(store)
        away(store)
        checks = [profile_check(name=f"p{i}", fallback=way) for i, way in enumerate(ways)]
        decision = limiter.charge(limiter.windows(checks))
        assert outcomes([decision]) == [outcome]
        local = [f"p{i}" for i, way in enumerate(ways) if way in (None, "local")]
        if outcome[1] == decisions.LOCAL:
            assert [verdict.profile for verdict in decision.verdicts] == local

    def test_observing_profile_denies_nobody(self, store: Store) -> None:
        limiter = Limiter(store, fallback="allow")
        away(store)
        decision = limiter.charge(limiter.windows([profile_check(fallback="deny", mode="observe")]))
        assert outcomes([decision]) == [(True, decisions.ALLOW)]

    def test_flood_of_identifiers_stays_bounded(self, store: Store) -> None:
        limiter = Limiter(store, local=MemoryStore(max_keys=100))
        away(store)
        for number in range(1000):
            assert limiter.charge(limiter.windows([profile_check(identifier=str(number))])).allowed
        assert len(limiter.local) == 100


class TestShield:
    def test_refusal_is_answered_without_the_store(self, store: Store) -> None:
        limiter = Limiter(store, shield=Shield(60))
        answers = [limiter.charge(limiter.windows([profile_check(limit=1)])) for _ in range(5)]
        assert outcomes(answers) == [
            (True, decisions.REDIS),
            (False, decisions.REDIS),
            *[(False, decisions.SHIELD)] * 3,
        ]
        assert len(store.calls) == 2
        waits = [answer.retry_after for answer in answers[1:]]
        assert waits == sorted(waits, reverse=True)
        assert answers[-1].verdicts[0].retry_after == waits[-1]

    def test_refusal_for_good_stays_one(self, store: Store) -> None:
        limiter = Limiter(store, shield=Shield(60))
        answers = [
            limiter.charge(limiter.windows([profile_check(limit=1, cost=2)])) for _ in range(2)
        ]
        assert [answer.retry_after for answer in answers] == [None, None]
        assert answers[1].source == decisions.SHIELD

    def test_smaller_cost_and_larger_limit_ask_the_store(self, store: Store) -> None:
        limiter = Limiter(store, shield=Shield(60))
        assert limiter.charge(limiter.windows([profile_check(cost=2)])).allowed
        assert not limiter.charge(limiter.windows([profile_check(cost=2)])).allowed
        assert limiter.charge(limiter.windows([profile_check(cost=1)])).source == decisions.REDIS
        assert (
            limiter.charge(limiter.windows([profile_check(cost=2, limit=5)])).source
            == decisions.REDIS
        )

    @pytest.mark.parametrize(
        "options", [{"mode": "observe"}, {"count_rejected": True}, {"algorithm": "counter"}]
    )
    def test_profiles_that_must_see_every_request_are_not_shielded(
        self, options: dict[str, Any], store: Store
    ) -> None:
        limiter = Limiter(store, shield=Shield(60))
        for _ in range(5):
            limiter.charge(limiter.windows([profile_check(limit=1, **options)]))
        assert len(store.calls) == 5

    def test_refund_and_reset_clear_it(self, store: Store) -> None:
        limiter = Limiter(store, shield=Shield(60))
        first = limiter.charge(limiter.windows([profile_check(limit=1)]))
        limiter.charge(limiter.windows([profile_check(limit=1)]))
        limiter.refund(first)
        assert limiter.charge(limiter.windows([profile_check(limit=1)])).allowed
        assert not limiter.charge(limiter.windows([profile_check(limit=1)])).allowed
        limiter.reset(limiter.windows([profile_check()]).keys)
        assert limiter.charge(limiter.windows([profile_check(limit=1)])).allowed

    def test_refusal_of_the_fallback_is_not_remembered(self, store: Store) -> None:
        limiter = Limiter(store, shield=Shield(60))
        away(store)
        answers = [limiter.charge(limiter.windows([profile_check(limit=1)])) for _ in range(5)]
        assert outcomes(answers)[1:] == [(False, decisions.LOCAL)] * 4


class TestReceipt:
    def test_window_that_was_charged_nothing_is_not_on_the_receipt(self, store: Store) -> None:
        limiter = Limiter(store)
        decision = limiter.charge(limiter.windows([profile_check("a", cost=0), profile_check("b")]))
        assert decision.receipt is not None
        ((charges, _),) = decision.receipt.parts
        assert [charge.cost for charge in charges] == [1]
        assert (
            limiter.charge(
                limiter.windows([profile_check("a", cost=0), profile_check("b", cost=0)])
            ).receipt
            is None
        )

    @pytest.mark.parametrize("resolutions", [(7, 60), (60, 7)])
    def test_refund_where_profiles_share_a_window_of_different_resolutions(
        self, store: Store, resolutions: tuple[int, int]
    ) -> None:
        limiter = Limiter(store)
        policies = [
            Policy(limit=9, window=60, algorithm="buckets", resolution=each) for each in resolutions
        ]
        sharing = [
            ProfileCheck(
                Profile(name=f"{i}", axis="tenant", scope="s", policies=(policy,)),
                "acme",
                (policy,),
            )
            for i, policy in enumerate(policies)
        ]
        decision = limiter.charge(limiter.windows(sharing))
        assert limiter.refund(decision) == 1

    def test_profiles_that_share_a_window_share_its_hits_and_cost_the_most(
        self, store: Store
    ) -> None:
        limiter = Limiter(store)
        checks = [
            profile_check(name="p", scope="s", limit=9),
            profile_check(name="q", scope="s", limit=5, cost=2),
        ]
        decision = limiter.charge(limiter.windows(checks))
        assert [verdict.remaining for verdict in decision.verdicts] == [7, 3]
        assert len({verdict.key for verdict in decision.verdicts}) == 1
        assert limiter.refund(decision) == 2


class TestMemory:
    def test_store_in_memory_checks_several_profiles_at_once(self) -> None:
        limiter = Limiter(MemoryStore())
        answers = [
            limiter.charge(limiter.windows([profile_check("a"), profile_check("b", limit=2)]))
            for _ in range(3)
        ]
        assert outcomes(answers) == [(True, decisions.LOCAL)] * 2 + [(False, decisions.LOCAL)]

    def test_store_in_memory_fails_as_one(self) -> None:
        class Away(MemoryStore):
            def run(self, call: Call) -> Any:
                if self.away:
                    raise AWAY
                return super().run(call)

            def charge(self, keys: tuple[str, ...], rules: WindowRules) -> Reply:
                reply: Reply = self.run(Evaluate(keys, rules, writes=True))
                return reply

            away = True

        store = Away()
        limiter = Limiter(store)
        for name in "abc":
            limiter.charge(limiter.windows([profile_check(name)]))
        assert limiter.breaker.state == OPEN
        store.away = False
        limiter.breaker.of("")._probe_at = 0.0
        limiter.charge(limiter.windows([profile_check()]))
        assert limiter.breaker.state == CLOSED


class TestAcquire:
    def test_waits_until_admitted(self, store: Store) -> None:
        limiter = Limiter(store)
        limiter.charge(limiter.windows([profile_check(limit=1, window=0.05)]))
        decision = limiter.acquire(limiter.windows([profile_check(limit=1, window=0.05)]))
        assert decision.allowed

    async def test_acquire_gives_up_when_the_time_cannot_be_enough(self, store: Store) -> None:
        limiter = Limiter(store)
        limiter.charge(limiter.windows([profile_check(limit=1)]))
        assert not limiter.acquire(limiter.windows([profile_check(limit=1)]), timeout=1).allowed
        assert not (
            await limiter.aacquire(limiter.windows([profile_check(limit=1, cost=2)]))
        ).allowed

    async def test_does_not_spin_while_the_store_is_away(self, store: Store) -> None:
        limiter = Limiter(store, fallback="deny")
        away(store)
        assert not (
            await limiter.aacquire(limiter.windows([profile_check()]), timeout=0.25)
        ).allowed
        assert len(store.calls) <= 3


class TestSeveralCalls:
    def test_dead_node_does_not_block_the_others(self, split: Store) -> None:
        limiter = Limiter(split)
        split.fails = lambda call: AWAY if "{a}" in call.keys[0] else None  # type: ignore[union-attr]
        for _ in range(5):
            assert (
                limiter.charge(limiter.windows([profile_check("a", limit=10)])).source
                == decisions.LOCAL
            )
            assert (
                limiter.charge(limiter.windows([profile_check("b", limit=10)])).source
                == decisions.REDIS
            )
        assert limiter.breaker.of("a").state == OPEN
        assert limiter.breaker.of("b").state == CLOSED

    def test_check_with_a_dead_node_asks_no_node(self, split: Store) -> None:
        limiter = Limiter(split)
        split.fails = lambda call: AWAY if "{a}" in call.keys[0] else None  # type: ignore[union-attr]
        for _ in range(3):
            limiter.charge(limiter.windows([profile_check("a")]))
        asked = len(split.calls)
        assert (
            limiter.charge(limiter.windows([profile_check("a"), profile_check("b")])).source
            == decisions.LOCAL
        )
        assert len(split.calls) == asked

    def test_node_recovers_while_another_is_away(self, split: Store) -> None:
        limiter = Limiter(split)
        away(split)
        for _ in range(3):
            limiter.charge(limiter.windows([profile_check("b")]))
        recovers(limiter, split)
        split.fails = lambda call: AWAY if "{a}" in call.keys[0] else None  # type: ignore[union-attr]
        assert (
            limiter.charge(limiter.windows([profile_check("a"), profile_check("b")])).source
            == decisions.LOCAL
        )
        assert limiter.breaker.of("b").state == CLOSED
        assert limiter.charge(limiter.windows([profile_check("b")])).source == decisions.REDIS

    def test_node_that_only_reads_is_away(self, split: Store) -> None:
        """It answers the peek that comes before a charge, and that proves nothing."""
        recorder = Recorder()
        limiter = Limiter(split, callbacks=recorder.callbacks)
        windows = limiter.windows([profile_check("a", limit=9), profile_check("b", limit=9)])
        split.fails = lambda call: AWAY if getattr(call, "writes", True) else None
        for state in (CLOSED, CLOSED, OPEN):
            assert limiter.charge(windows).source == decisions.LOCAL
            assert limiter.breaker.state == state
        assert ("degraded", str(AWAY)) in recorder.events
        reads = split.fails
        recovers(limiter, split)
        split.fails = reads
        assert limiter.charge(windows).source == decisions.LOCAL
        assert limiter.breaker.of("a").state == OPEN, "it has failed as a probe"
        recovers(limiter, split)
        assert limiter.charge(windows).source == decisions.REDIS
        assert limiter.breaker.state == CLOSED

    def test_node_that_is_not_charged_after_all_may_be_probed_at_once(self, split: Store) -> None:
        limiter = Limiter(split)
        windows = limiter.windows([profile_check("a", limit=8), profile_check("b", limit=9)])
        away(split)
        for _ in range(3):
            limiter.charge(windows)
        recovers(limiter, split)
        # `a` has fewer hits left and is charged first, so nothing was charged in `b`.
        split.fails = lambda call: AWAY if getattr(call, "writes", True) else None
        assert limiter.charge(windows).source == decisions.LOCAL
        split.fails = lambda call: None
        assert limiter.charge(limiter.windows([profile_check("b")])).source == decisions.REDIS

    def test_refused_check_is_a_probe(self, split: Store) -> None:
        limiter = Limiter(split)
        away(split)
        for name in "aaabbb":
            limiter.charge(limiter.windows([profile_check(name)]))
        recovers(limiter, split)
        windows = limiter.windows([profile_check("a", limit=0), profile_check("b")])
        assert outcomes([limiter.charge(windows)]) == [(False, decisions.REDIS)]
        assert limiter.breaker.state == CLOSED

    @pytest.mark.parametrize("error", [AWAY, SPOILED])
    def test_refusal_that_cannot_be_stored_stays_a_refusal(
        self, split: Store, error: StoreError
    ) -> None:
        limiter = Limiter(split, fallback="allow")
        counting = profile_check("a", limit=1, count_rejected=True)
        windows = limiter.windows([counting, profile_check("b")])
        assert limiter.charge(windows).allowed
        split.fails = lambda call: error if getattr(call, "writes", True) else None
        for _ in range(3):
            assert outcomes([limiter.charge(windows)]) == [(False, decisions.REDIS)]
        assert limiter.breaker.of("a").state == (OPEN if error.outage else CLOSED)

    def test_refusal_that_there_is_no_time_to_store_stays_a_refusal(self, split: Store) -> None:
        now = [0.0]
        limiter = Limiter(split, fallback="allow", budget=0.1, clock=lambda: now[0])
        counting = profile_check("a", limit=0, count_rejected=True)

        def slow(call: Call) -> None:
            now[0] += 0.05

        split.fails = slow
        decision = limiter.charge(limiter.windows([counting, profile_check("b")]))
        assert outcomes([decision]) == [(False, decisions.REDIS)]
        assert len(split.calls) == 2, "both are looked at"

    def test_interrupted_probe_is_left_to_the_next_caller(self, split: Store) -> None:
        limiter = Limiter(split)
        away(split)
        for _ in range(3):
            limiter.charge(limiter.windows([profile_check("b")]))
        recovers(limiter, split)

        def interrupted(call: Call) -> None:
            raise KeyboardInterrupt

        split.fails = interrupted
        with pytest.raises(KeyboardInterrupt):
            limiter.charge(limiter.windows([profile_check("a"), profile_check("b")]))
        assert limiter.breaker.of("b").state == OPEN, "not half-open for ever"
        split.fails = lambda call: None
        assert limiter.charge(limiter.windows([profile_check("b")])).source == decisions.REDIS

    def test_used_up_budget_is_not_a_failure_of_the_node(self, split: Store) -> None:
        now = [0.0]

        def slow(call: Call) -> None:
            now[0] += 0.08

        limiter = Limiter(split, budget=0.1, clock=lambda: now[0])
        split.fails = slow
        decision = limiter.charge(limiter.windows([profile_check("a"), profile_check("b")]))
        assert decision.source == decisions.LOCAL
        assert len(split.calls) == 2, "both are looked at, and none is charged"
        assert limiter.breaker.state == CLOSED

    def test_calls_share_the_budget(self, split: Store) -> None:
        now = [0.0]

        def slow(call: Call) -> None:
            now[0] += 0.01

        limiter = Limiter(split, budget=0.1, clock=lambda: now[0])
        split.fails = slow
        assert (
            limiter.charge(limiter.windows([profile_check("a"), profile_check("b")])).source
            == decisions.REDIS
        )
        assert [call.within for call in split.calls] == pytest.approx([0.075, 0.075, 0.055, 0.045])

    def test_giving_back_has_its_share_of_the_budget(self, split: Store) -> None:
        now = [0.0]

        def slow(call: Call) -> StoreError | None:
            now[0] += 0.02
            return AWAY if len(split.calls) == 4 else None

        limiter = Limiter(split, budget=0.1, clock=lambda: now[0])
        split.fails = slow
        assert (
            limiter.charge(limiter.windows([profile_check("a"), profile_check("b")])).source
            == decisions.LOCAL
        )
        refund = split.calls[-1]
        assert isinstance(refund, Refund)
        assert refund.within == pytest.approx(0.02)
        assert limiter.peek(limiter.windows([profile_check("a")])).remaining == 2

    def test_race_with_others_gives_back_and_refuses(self, split: Store) -> None:
        limiter = Limiter(split)
        other = Limiter(split)

        overtaken(split, other, 4)
        decision = limiter.charge(
            limiter.windows([profile_check("a", limit=1), profile_check("b", limit=1)])
        )
        assert not decision.allowed
        assert decision.source == decisions.REDIS
        assert limiter.charge(limiter.windows([profile_check("a", limit=1)])).allowed, (
            "it was given back"
        )

    def test_returned_units_end_refusals_of_the_full_window(self, split: Store) -> None:
        limiter = Limiter(split, shield=Shield(60))
        other = Limiter(split)
        mine = [profile_check("a", limit=1)]

        def fails(call: Call) -> None:
            if len(split.calls) == 4:
                # `a` is charged. The shield learns that it is full, then `b` refuses.
                split.fails = lambda call: None
                assert not limiter.charge(limiter.windows(mine)).allowed
                assert limiter.charge(limiter.windows(mine)).source == decisions.SHIELD
                other.charge(other.windows([profile_check("b", limit=1)]))

        split.fails = fails
        assert not limiter.charge(limiter.windows([*mine, profile_check("b", limit=1)])).allowed
        assert limiter.charge(limiter.windows(mine)).allowed

    async def test_abandoned_check_sends_no_refunds(self, split: Store) -> None:
        limiter = Limiter(split)
        checking = limiter.acharge(limiter.windows([profile_check("a"), profile_check("b")]))
        checking.send(None)
        checking.close()
        await asyncio.sleep(0)
        assert limiter.peek(limiter.windows([profile_check("a")])).remaining == 2

    def test_giving_back_that_fails_leaves_the_decision(self, split: Store) -> None:
        limiter = Limiter(split)
        other = Limiter(split)

        overtaken(split, other, 4, lambda call: AWAY if isinstance(call, Refund) else None)
        decision = limiter.charge(
            limiter.windows([profile_check("a", limit=1), profile_check("b", limit=1)])
        )
        assert outcomes([decision]) == [(False, decisions.REDIS)]
        assert not limiter.charge(limiter.windows([profile_check("a", limit=1)])).allowed, (
            "it stays until it expires"
        )

    def test_part_that_was_charged_nothing_is_not_given_back(self, split: Store) -> None:
        limiter = Limiter(split)
        other = Limiter(split)

        # So that it has as little left as the other, and comes first by its name.
        other.charge(other.windows([profile_check("a", limit=1)]))
        overtaken(split, other, 5)
        decision = limiter.charge(
            limiter.windows([profile_check("a", cost=0, limit=1), profile_check("b", limit=1)])
        )
        assert outcomes([decision]) == [(False, decisions.REDIS)]
        assert not any(isinstance(call, Refund) for call in split.calls)

    def test_window_with_the_least_left_is_charged_first_and_alone(self, split: Store) -> None:
        limiter = Limiter(split)
        limiter.charge(
            limiter.windows(
                [
                    profile_check("a", limit=9),
                    profile_check("b", limit=3),
                    profile_check("c", limit=9),
                ]
            )
        )
        charged = [call.keys[0] for call in split.calls if isinstance(call, Evaluate)][3:]
        assert ["{b}" in key for key in charged] == [True, False, False]

    @pytest.mark.parametrize("count", [2, 3, 8])
    def test_check_takes_three_round_trips_however_many_slots_there_are(
        self, split: Store, monkeypatch: pytest.MonkeyPatch, count: int
    ) -> None:
        trips: list[int] = []
        ran = split.run_together

        def counted(calls: Sequence[Call]) -> list[list[int] | StoreError]:
            trips.append(len(calls))
            return ran(calls)

        monkeypatch.setattr(split, "run_together", counted)
        assert (
            Limiter(split)
            .charge(
                Limiter(split).windows([profile_check(f"i{number}") for number in range(count)])
            )
            .allowed
        )
        assert trips == [count, 1, count - 1]
        assert len(split.calls) == 2 * count

    def test_loser_of_a_race_charges_no_other_group(self, split: Store) -> None:
        limiter = Limiter(split)
        other = Limiter(split)

        overtaken(split, other, 4)
        checks = [
            profile_check("a", limit=9),
            profile_check("b", limit=1),
            profile_check("c", limit=9),
        ]
        assert not limiter.charge(limiter.windows(checks)).allowed
        assert [call for call in split.calls if isinstance(call, Refund)] == []
        assert [type(call) for call in split.calls] == [Evaluate] * 5

    def test_observing_window_is_never_the_scarcest(self, split: Store) -> None:
        limiter = Limiter(split)
        checks = [
            profile_check("a", limit=1, mode="observe"),
            profile_check("b", limit=2, mode="observe"),
        ]
        assert limiter.charge(limiter.windows([*checks, profile_check("c", limit=9)])).allowed
        assert "{c}" in split.calls[3].keys[0]  # type: ignore[union-attr]
        split.calls.clear()
        assert limiter.charge(limiter.windows(checks)).allowed
        assert ["{a}" in call.keys[0] for call in split.calls] == [True, False, True, False]  # type: ignore[union-attr]

    def test_peeks_of_several_slots_are_combined(self, split: Store) -> None:
        limiter = Limiter(split)
        decision = limiter.peek(
            limiter.windows(
                [
                    profile_check("a"),
                    profile_check("b", limit=2),
                    profile_check("a", limit=9, name="q"),
                ]
            )
        )
        assert [verdict.limit for verdict in decision.verdicts] == [3, 2, 9]
        assert [verdict.remaining for verdict in decision.verdicts] == [2, 1, 8]
        assert len(split.calls) == 2

    def test_reset_asks_each_node(self, split: Store) -> None:
        limiter = Limiter(split)
        for name in "abc":
            limiter.charge(limiter.windows([profile_check(name)]))
        keys = [key for name in "abc" for key in limiter.windows([profile_check(name)]).keys]
        assert limiter.reset([*keys, *keys]) == 3
        assert limiter.reset([]) == 0


class OneNode(Store):
    """Slots that are all on one node: they fail together, and no one call can hold them."""

    def node(self, key: str) -> str:
        return "node"

    def nodes(self) -> list[str]:
        return ["node"]

    def groups(self, keys: tuple[str, ...]) -> list[list[int]] | None:
        return [[i] for i in range(len(keys))] if len(keys) > 1 else None


class TestSlotsOfOneNode:
    def test_one_check_that_fails_is_one_failure(self) -> None:
        store = OneNode()
        limiter = Limiter(store)
        away(store)
        for state in (CLOSED, CLOSED, OPEN):
            checks = [profile_check(name, limit=10) for name in "abc"]
            assert limiter.charge(limiter.windows(checks)).source == decisions.LOCAL
            assert limiter.breaker.state == state
        assert len(store.calls) == 9

    def test_check_of_several_is_a_probe_and_finds_the_node_back(self) -> None:
        store = OneNode()
        limiter = Limiter(store)
        checks = [profile_check(name, limit=10) for name in "abc"]
        away(store)
        for _ in range(3):
            limiter.charge(limiter.windows(checks))
        recovers(limiter, store)
        assert limiter.charge(limiter.windows(checks)).source == decisions.REDIS
        assert limiter.breaker.state == CLOSED

    def test_error_of_one_slot_is_not_an_outage_of_its_node(self) -> None:
        store = OneNode()
        limiter = Limiter(store)
        for number, error in enumerate((SPOILED, AWAY)):
            store.fails = lambda call: error if "{b}" in call.keys[0] else None  # type: ignore[union-attr]  # noqa: B023
            for _ in range(3):
                limiter.charge(limiter.windows([profile_check(name, limit=10) for name in "abc"]))
            assert limiter.breaker.state == (CLOSED, OPEN)[number]


class TestPrepared:
    """What is prepared for a profile is kept, but never too much of it."""

    def test_many_costs_and_profiles_are_answered_from_a_bounded_store(self, store: Store) -> None:
        limiter = Limiter(store)
        windows = limiter._windows
        kept = (windows._templates, windows._joined, limiter._fallback._shares)
        for cache in kept:
            cache.size = 2
        profiles = [profile(name, limit=1_000) for name in "abcd"]
        away(store)
        for cost in range(1, 6):
            for one, other in itertools.permutations(profiles, 2):
                checks = [ProfileCheck(of, "x", of.policies, cost) for of in (one, other)]
                assert limiter.charge(limiter.windows(checks)).allowed
                assert limiter.charge(limiter.windows(checks[:1])).verdicts[0].profile == one.name
                assert limiter.windows(checks).template.profiles == (one, other)
        assert all(1 <= len(cache) <= 2 for cache in kept)

    def test_profile_that_takes_the_place_of_another_has_its_own_limit(self, store: Store) -> None:
        limiter = Limiter(store)
        for limit in range(1, 50):
            # Each may get the memory, and so the id, of the one before.
            assert (
                limiter.charge(limiter.windows([profile_check(limit=limit, cost=0)])).limit == limit
            )
