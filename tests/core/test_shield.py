"""A flood of refusals is answered from memory, and never for longer than the truth holds."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeAlias

import http_sf
import pytest

from django_slidingwindow import decisions
from django_slidingwindow.core.callbacks import Callbacks
from django_slidingwindow.core.limiter import Limiter
from django_slidingwindow.core.shield import Shield
from django_slidingwindow.core.windows import ProfileCheck
from django_slidingwindow.decisions import Decision, Verdict
from django_slidingwindow.http.headers import field_values
from django_slidingwindow.policies import Policy, Profile
from django_slidingwindow.stores.redis import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from redis import Redis

POLICY = Policy(limit=10, window=60)
Question: TypeAlias = "tuple[tuple[str, int, int], ...]"
ONE: Question = (("k:c60", 10, 1),)
TEN: Question = (("k:c60", 10, 10),)
BOTH: Question = (("k:c60", 10, 1), ("l:c60", 5, 1))


def verdict(key: str, reset_after: float = 30.0, *, allowed: bool = False) -> Verdict:
    return Verdict(
        profile="ip",
        policy=POLICY,
        key=key,
        allowed=allowed,
        observed=False,
        limit=10,
        remaining=0,
        retry_after=0.0 if allowed else reset_after or None,
        reset_after=reset_after,
    )


def refusal(*verdicts: Verdict) -> Decision:
    return Decision(
        allowed=False,
        profile="ip",
        policy=POLICY,
        limit=10,
        remaining=0,
        retry_after=verdicts[0].retry_after,
        reset_after=verdicts[0].reset_after,
        reason=decisions.LIMIT,
        source=decisions.REDIS,
        verdicts=verdicts,
    )


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def shield(clock: Clock) -> Shield:
    return Shield(1.0, max_entries=3, clock=clock)


def remember(shield: Shield, question: Question, reset_after: float = 30.0) -> Decision:
    decision = refusal(*[verdict(key, reset_after) for key, _, _ in question])
    shield.remember(question, decision, shield.forgotten)
    return decision


def test_refusal_is_found_with_its_age(shield: Shield, clock: Clock) -> None:
    decision = remember(shield, ONE)
    clock.now += 0.25
    assert shield.find(ONE) == (decision, decision.verdicts, 0.25)


def test_nothing_is_found_for_another_cost_limit_or_set(shield: Shield) -> None:
    remember(shield, TEN)
    assert shield.find(ONE) is None
    assert shield.find((("k:c60", 20, 10),)) is None
    assert shield.find((*TEN, ("l:c60", 5, 1))) is None


def test_refusal_is_kept_no_longer_than_its_seconds(shield: Shield, clock: Clock) -> None:
    remember(shield, ONE)
    clock.now += 1.0
    assert shield.find(ONE) is None
    assert len(shield) == 0


def many(number: int) -> list[Question]:
    return [((f"k{each}:c60", 10, 1),) for each in range(number)]


def test_refusals_that_have_ended_are_dropped_though_nobody_asks_for_them(clock: Clock) -> None:
    shield = Shield(1.0, clock=clock)
    for question in many(5):
        remember(shield, question)
    clock.now += 0.5
    remember(shield, ONE)
    clock.now += 0.5
    for left in (4, 2, 1, 1):
        assert shield.find(TEN) is None
        assert len(shield) == left
    assert shield.find(ONE) is not None
    clock.now += 0.5
    assert shield.find(TEN) is None
    assert len(shield) == 0
    assert not shield._questions
    assert shield.find(TEN) is None


def test_refusals_that_have_ended_make_room_for_new_ones(clock: Clock) -> None:
    shield = Shield(1.0, clock=clock)
    for question in many(100):
        remember(shield, question)
        clock.now += 0.1
        assert len(shield) <= 11


def test_refusal_that_lasts_is_not_dropped_with_an_older_one(shield: Shield, clock: Clock) -> None:
    remember(shield, ONE)
    shield.forget(["k:c60"])
    clock.now += 0.75
    remember(shield, ONE)
    clock.now += 0.25
    assert shield.find(TEN) is None
    assert shield.find(ONE) is not None


def test_refusal_is_kept_no_longer_than_it_holds(shield: Shield, clock: Clock) -> None:
    remember(shield, ONE, 0.5)
    clock.now += 0.5
    assert shield.find(ONE) is None


def test_refusal_for_good_is_kept_as_long_as_any(shield: Shield, clock: Clock) -> None:
    remember(shield, ONE, 0.0)
    clock.now += 0.9
    assert shield.find(ONE) is not None
    clock.now += 0.1
    assert shield.find(ONE) is None


def test_refusal_is_kept_until_a_hit_leaves_another_window(shield: Shield, clock: Clock) -> None:
    other = verdict("k:c3600", 0.5, allowed=True)
    shield.remember(ONE, refusal(verdict("k:c60"), other), shield.forgotten)
    clock.now += 0.4
    assert shield.find(ONE) is not None
    clock.now += 0.1
    assert shield.find(ONE) is None


def test_replay_shows_no_window_that_others_charge(shield: Shield, clock: Clock) -> None:
    decision = refusal(verdict("k:c60"), verdict("all:c60", 0.01, allowed=True))
    shield.remember(ONE, decision, shield.forgotten)
    clock.now += 0.9
    assert shield.find(ONE) == (decision, decision.verdicts[:1], pytest.approx(0.9))


def test_refusal_is_not_kept_when_windows_were_freed_meanwhile(shield: Shield) -> None:
    for free in (shield.clear, lambda: shield.forget(["k:c60"])):
        before = shield.forgotten
        free()
        shield.remember(ONE, refusal(verdict("k:c60")), before)
        assert len(shield) == 0


def test_charge_drops_the_refusals_that_show_its_window(shield: Shield) -> None:
    remember(shield, ONE)
    shield.charged(("l:c60",))
    assert shield.find(ONE) is not None
    shield.charged(("l:c60", "k:c60"))
    assert shield.find(ONE) is None


def test_oldest_refusal_goes_first_when_there_are_too_many(shield: Shield) -> None:
    questions: list[Question] = [((f"k{i}:c60", 10, 1),) for i in range(3)]
    for question in questions:
        remember(shield, question)
    remember(shield, questions[0])
    remember(shield, ONE)
    assert len(shield) == 3
    assert shield.find(questions[1]) is None
    assert shield.find(questions[0]) is not None


def test_memory_stays_bounded_under_a_flood(shield: Shield) -> None:
    for i in range(1000):
        remember(shield, ((f"k{i}:c60", 10, 1), (f"l{i % 7}:c60", 10, 1)))
    assert len(shield) == 3
    assert len(shield._questions) <= 6


def test_forgotten_window_frees_every_refusal_it_has_a_part_in(shield: Shield) -> None:
    for question in (ONE, TEN, BOTH):
        remember(shield, question)
    shield.forget(["l:c60", "unknown"])
    assert shield.find(BOTH) is None
    assert shield.find(ONE) is not None
    shield.forget(["k:c60"])
    assert len(shield) == 0
    assert not shield._questions


def test_cleared_shield_is_empty(shield: Shield) -> None:
    remember(shield, BOTH)
    shield.clear()
    assert shield.find(BOTH) is None
    assert len(shield) == 0
    shield.forget(["k:c60", "l:c60"])


def test_refusal_of_two_windows_with_one_key_is_dropped_once(shield: Shield) -> None:
    twice: Question = (("k:c60", 10, 1), ("k:c60", 5, 1))
    remember(shield, twice)
    shield.forget(["k:c60"])
    assert len(shield) == 0


def test_refusal_that_was_renewed_meanwhile_stays(shield: Shield, clock: Clock) -> None:
    class Renewing:
        """A lock that another thread held, and renewed the refusal under it."""

        def __enter__(self) -> None:
            shield._lock = lock
            remember(shield, ONE)

        def __exit__(self, *_: object) -> None:
            pass

    remember(shield, ONE)
    clock.now += 1
    lock, shield._lock = shield._lock, Renewing()  # type: ignore[assignment]
    assert shield.find(ONE) is None
    assert shield.find(ONE) is not None


def profile(name: str, *rates: str, axis: str = "user", **fields: Any) -> Profile:
    algorithm = fields.pop("algorithm", "compact")
    policies = tuple(Policy.parse(rate, algorithm=algorithm) for rate in rates)
    return Profile(name=name, axis=axis, policies=policies, **fields)


def profile_check(of: Profile, identifier: str = "ada", cost: int = 1) -> ProfileCheck:
    return ProfileCheck(of, identifier, of.policies, cost)


class TestFreedWindows:
    """In this process, what frees a window ends the refusals that knew it full."""

    @pytest.fixture
    def limiter(self, redis: Redis) -> Limiter:
        return Limiter(RedisStore("default", budget=60), shield=Shield(60))

    def free(self, limiter: Limiter, way: str, decision: Decision) -> None:
        if way == "refund":
            assert limiter.refund(decision) == 1
        else:
            assert limiter.reset([decision.key]) == 1

    @pytest.mark.parametrize("way", ["refund", "reset"])
    def test_request_passes_when_its_window_was_freed_during_its_refusal(
        self, limiter: Limiter, monkeypatch: pytest.MonkeyPatch, way: str
    ) -> None:
        mine = [profile_check(profile("mine", "1/h"))]
        first = limiter.charge(limiter.windows(mine))
        ran = limiter.store.run

        def overtaken(call: Any) -> list[int]:
            monkeypatch.undo()
            in_another_thread(lambda: refused.append(limiter.charge(limiter.windows(mine))))
            return ran(call)

        refused: list[Decision] = []
        monkeypatch.setattr(limiter.store, "run", overtaken)
        self.free(limiter, way, first)
        assert [decision.source for decision in refused] == [decisions.REDIS]
        assert limiter.charge(limiter.windows(mine)).allowed

    @pytest.mark.parametrize("way", ["refund", "reset"])
    @pytest.mark.parametrize("kind", ["sync", "async"])
    async def test_request_passes_whose_refusal_arrived_after_they_were_freed(
        self, limiter: Limiter, monkeypatch: pytest.MonkeyPatch, way: str, kind: str
    ) -> None:
        mine = [profile_check(profile("mine", "1/h"))]
        first = limiter.charge(limiter.windows(mine))
        charge, acharge = limiter.store.charge, limiter.store.acharge

        def slowly(*arguments: Any) -> Any:
            reply = charge(*arguments)
            monkeypatch.undo()
            in_another_thread(lambda: self.free(limiter, way, first))
            return reply

        async def aslowly(*arguments: Any) -> Any:
            reply = await acharge(*arguments)
            monkeypatch.undo()
            in_another_thread(lambda: self.free(limiter, way, first))
            return reply

        monkeypatch.setattr(limiter.store, "charge", slowly)
        monkeypatch.setattr(limiter.store, "acharge", aslowly)
        refused = (
            limiter.charge(limiter.windows(mine))
            if kind == "sync"
            else await limiter.acharge(limiter.windows(mine))
        )
        assert (refused.allowed, refused.source) == (False, decisions.REDIS)
        assert limiter.charge(limiter.windows(mine)).allowed


def in_another_thread(act: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 -- the caller fails with it
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert failures == []


class TestReplays:
    """Random traffic on shared windows gets the same answers with and without a shield."""

    @pytest.mark.parametrize(
        ("algorithm", "receivers"), [("compact", []), ("log", []), ("buckets", [None])]
    )
    def test_replay_shows_what_the_store_would(
        self, redis: Redis, algorithm: str, receivers: list[None]
    ) -> None:
        """`receivers`: a check to which nobody listens takes a shorter way."""
        clock, callbacks = Clock(), Callbacks(listeners=SimpleNamespace(receivers=receivers))

        def limiter(prefix: str, seconds: float) -> Limiter:
            # The steps of the clock are whole in microseconds, and in binary. Windows are long:
            # Redis deletes keys by its own clock, which must not matter on a slow machine.
            store = RedisStore("default", budget=60, clock=lambda: round(clock.now * 1_000_000))
            return Limiter(
                store, prefix=prefix, callbacks=callbacks, shield=Shield(seconds, clock=clock)
            )

        shielded, plain = limiter("shielded", 60.0), limiter("plain", 0)
        user = profile("user", "4/m", "12/10m", "60/h", algorithm=algorithm)
        profiles = [
            [user],
            [user, profile("all", "40/10m", axis="global", algorithm=algorithm)],
            [profile("read", "9/5m", scope="s", algorithm=algorithm)],
            [profile("write", "5/5m", "20/h", scope="s", algorithm=algorithm)],
        ]
        dice = random.Random(algorithm)
        replays = hidden = 0
        for step in range(1_500):
            clock.now += dice.choice([0, 0, 1, 1, 2, 8]) * 60 / 64
            chosen = dice.choice(profiles)
            cost = dice.choice([1, 1, 1, 2, 7])
            checks = [
                profile_check(of, "x" if of.axis == "global" else dice.choice("ab"), cost)
                for of in chosen
            ]
            if dice.random() < 0.02:
                assert shielded.reset(shielded.windows(checks[:1]).keys) == plain.reset(
                    plain.windows(checks[:1]).keys
                )
            answer = shielded.charge(shielded.windows(checks))
            truth = plain.charge(plain.windows(checks))
            assert answer.allowed == truth.allowed, step
            assert answer.retry_after == pytest.approx(truth.retry_after), step
            shown, all_of_it = fields(answer), fields(truth)
            assert shown.items() <= all_of_it.items(), step
            if answer.allowed and dice.random() < 0.2:
                assert shielded.refund(answer) == plain.refund(truth)
            if answer.source == decisions.SHIELD:
                replays += 1
                hidden += len(all_of_it) - len(shown)
            else:
                assert shown == all_of_it
        assert replays > 300
        assert 0 < hidden < replays


def fields(decision: Decision) -> dict[str, Any]:
    """What the headers say of each policy, and of the strictest."""
    values = field_values([decision])
    left = http_sf.parse(values.pop("RateLimit").encode(), tltype="list")
    quotas = http_sf.parse(values.pop("RateLimit-Policy").encode(), tltype="list")
    return {**values, **{f"r {k}": v for k, v in left}, **{f"q {k}": v for k, v in quotas}}
