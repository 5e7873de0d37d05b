from __future__ import annotations

import copy
import pickle
import threading

import pytest

from django_slidingwindow import decisions
from django_slidingwindow.decisions import (
    NO_LIMIT,
    Charge,
    Decision,
    Receipt,
    Verdict,
    new_decision,
)
from django_slidingwindow.policies import Policy

POLICY = Policy(limit=10, window=60)


def receipt() -> Receipt:
    return Receipt((((Charge("key", POLICY, 1),), 17),), local=False)


def decision(receipt: Receipt | None = None) -> Decision:
    return Decision(
        allowed=True,
        profile="login",
        policy=POLICY,
        limit=10,
        remaining=9,
        retry_after=0.0,
        reset_after=60.0,
        reason=decisions.ALLOWED,
        source=decisions.REDIS,
        receipt=receipt,
    )


def test_a_receipt_works_once() -> None:
    paper = receipt()
    assert [paper.use(), paper.use(), paper.use()] == [True, False, False]


def test_a_receipt_is_used_by_one_of_many_threads() -> None:
    paper = receipt()
    barrier = threading.Barrier(8)
    used: list[bool] = []

    def use() -> None:
        barrier.wait()
        used.append(paper.use())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(used) == [False] * 7 + [True]


def test_a_receipt_is_in_neither_repr_nor_equality() -> None:
    assert decision(receipt()) == decision()
    assert hash(decision(receipt())) == hash(decision())
    assert "receipt" not in repr(decision(receipt()))


def test_a_decision_with_a_receipt_can_be_logged_copied_and_sent() -> None:
    charged = decision(receipt())
    assert charged._asdict()["remaining"] == 9
    assert copy.deepcopy(charged) == charged
    sent = pickle.loads(pickle.dumps(charged))
    assert sent == charged
    assert sent.receipt.parts == charged.receipt.parts
    assert sent.receipt.use()


def test_a_decision_is_frozen() -> None:
    for name in ("allowed", "key", "verdicts", "receipt"):
        with pytest.raises(AttributeError):
            setattr(decision(), name, None)


def test_decisions_and_verdicts_differ_when_a_field_differs() -> None:
    assert decision() != decision().replace(remaining=8)
    # A plain tuple with the same fields is not a decision.
    assert decision() != tuple(decision())
    verdict = Verdict(
        profile="login",
        policy=POLICY,
        key="key",
        allowed=True,
        observed=False,
        limit=10,
        remaining=9,
        retry_after=0.0,
        reset_after=60.0,
    )
    assert verdict._replace(key="other") != verdict


def test_no_limit_is_above_every_limit() -> None:
    assert NO_LIMIT > 100_000_000


class Answered:
    """An answer that counts how often a decision reads it."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        self.asked += 1
        return ()

    receipt = receipt()


def test_verdicts_and_receipt_are_made_once_on_first_access() -> None:
    answer = Answered()
    made = new_decision(Decision, (*decision()[:-1], answer))
    assert answer.asked == 0
    assert made.verdicts == made.verdicts == ()
    assert answer.asked == 1
    assert made.receipt is answer.receipt
    assert made == decision()


def test_a_decision_has_the_key_that_decided() -> None:
    def verdict(key: str, **fields: object) -> Verdict:
        said = {"profile": "login", "policy": POLICY, "allowed": True, **fields}
        return Verdict(
            key=key,
            observed=False,
            limit=10,
            remaining=9,
            retry_after=0.0,
            reset_after=60.0,
            **said,
        )

    others = (
        verdict("a", profile="other"),
        verdict("b", policy=Policy(limit=9, window=60)),
        verdict("c", allowed=False),
    )
    assert decision().key == ""
    assert decision().replace(verdicts=others).key == ""
    found = decision().replace(verdicts=(*others, verdict("d"), verdict("e")))
    assert found.key == found.key == "d"
    assert copy.deepcopy(found).key == "d"
