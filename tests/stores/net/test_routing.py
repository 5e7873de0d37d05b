"""The route of a call in a cluster of simulated nodes. test_cluster has real nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoScriptError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from django_slidingwindow.policies import Policy
from django_slidingwindow.stores.commands import encode, pack
from django_slidingwindow.stores.flows import drive
from django_slidingwindow.stores.net.routing import (
    Pause,
    Send,
    SendAll,
    discover,
    owner,
    route,
    route_all,
    slot_of,
)
from django_slidingwindow.stores.net.topology import SLOTS, Address, Topology
from django_slidingwindow.stores.protocol import Evaluate, WindowRule

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE, TWO, THREE = (Address("10.0.0.1", port) for port in (7001, 7002, 7003))
CALL = Evaluate(("throttle:ip:{x}:y:c60",), (WindowRule(Policy(limit=3, window=60), 1),), True)
COMMAND = encode(CALL, None)
SLOT = slot_of(COMMAND.keys[0])
MAP = [[0, 8191, [b"10.0.0.1", 7001, b"id"]], [8192, 16383, ["10.0.0.2", 7002, "id"]]]
ALL_TO_ONE = [[0, SLOTS - 1, [b"10.0.0.1", 7001, b"id"], [b"10.0.0.1", 7003, b"id"]]]


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


class Nodes:
    """Return the given replies in order, and note the steps of the route."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[Send | Pause] = []

    def __call__(self, step: Send | Pause) -> Any:
        self.asked.append(step)
        if isinstance(step, Pause):
            return None
        reply = self.replies.pop(0)
        if isinstance(reply, RedisConnectionError):
            raise reply
        return [b"OK"] * (step.replies - 1) + [reply]

    @property
    def sends(self) -> list[tuple[Address, bytes]]:
        return [(step.address, step.payload) for step in self.asked if isinstance(step, Send)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def topology(clock: Clock) -> Topology:
    topology = Topology([ONE, TWO], clock=clock)
    topology.learn(ONE, ALL_TO_ONE)
    clock.now += 1
    return topology


def run(topology: Topology, *replies: Any) -> tuple[Any, Nodes]:
    nodes = Nodes(*replies)
    return drive(route(topology, COMMAND), nodes), nodes


def to(address: Address) -> str:
    return f"{SLOT} {address}"


def test_call_goes_to_the_owner_of_its_slot(topology: Topology) -> None:
    reply, nodes = run(topology, [1])
    assert reply == [1]
    assert nodes.sends == [(ONE, COMMAND.payload)]


def test_error_of_the_node_is_the_reply(topology: Topology) -> None:
    error = ResponseError("WRONGTYPE")
    assert run(topology, error)[0] is error


def test_moved_slot_is_followed_and_remembered(topology: Topology) -> None:
    reply, nodes = run(topology, MovedError(to(TWO)), [1])
    assert reply == [1]
    assert nodes.sends == [(ONE, COMMAND.payload), (TWO, COMMAND.payload)]
    assert run(topology, [1])[1].sends == [(TWO, COMMAND.payload)]


def test_moved_slot_without_a_host_is_on_the_host_that_was_asked(topology: Topology) -> None:
    _, nodes = run(topology, MovedError(f"{SLOT} :7003"), [1])
    assert nodes.sends[-1][0] == THREE


def test_whole_map_is_learned_again_after_a_move_but_not_with_every_call(
    topology: Topology, clock: Clock
) -> None:
    run(topology, MovedError(to(TWO)), [1])
    clock.now += 0.5
    _, nodes = run(topology, MAP, [1])
    assert nodes.sends[0] == (ONE, pack(b"CLUSTER", b"SLOTS"))
    run(topology, MovedError(to(TWO)), [1])
    assert len(run(topology, [1])[1].sends) == 1, "less than a second ago"


def test_ask_is_followed_in_one_payload_and_not_remembered(topology: Topology) -> None:
    reply, nodes = run(topology, AskError(to(TWO)), [1])
    assert reply == [1]
    assert nodes.sends[1] == (TWO, pack(b"ASKING") + COMMAND.payload)
    assert run(topology, [1])[1].sends == [(ONE, COMMAND.payload)]


def test_script_is_loaded_on_the_node_of_the_redirection(topology: Topology) -> None:
    lost = NoScriptError("No matching script")
    _, nodes = run(topology, AskError(to(TWO)), lost, b"sha", [1])
    assert nodes.sends[2:] == [
        (TWO, COMMAND.load),
        (TWO, pack(b"ASKING") + COMMAND.payload),
    ]


def test_script_that_cannot_be_loaded_is_the_reply(topology: Topology) -> None:
    refused = ResponseError("NOPERM")
    assert run(topology, NoScriptError("none"), refused)[0] is refused


def test_server_that_forgets_its_scripts_is_asked_by_source(topology: Topology) -> None:
    lost = NoScriptError("No matching script")
    reply, nodes = run(topology, *[lost, b"sha"] * 3, lost, [1])
    assert reply == [1]
    assert nodes.sends[-1] == (ONE, COMMAND.by_source)


def test_split_keys_are_tried_again_after_a_moment(topology: Topology) -> None:
    reply, nodes = run(topology, AskError(to(TWO)), TryAgainError("split"), [1])
    assert reply == [1]
    assert [type(step) for step in nodes.asked] == [Send, Send, Pause, Send]
    assert nodes.sends[-1] == (ONE, COMMAND.payload)


def test_circle_of_redirections_ends(topology: Topology) -> None:
    reply, nodes = run(topology, *[MovedError(to(TWO)), MovedError(to(ONE))] * 8)
    assert isinstance(reply, MovedError)
    assert len(nodes.sends) == 16


def test_map_is_read_again_when_a_node_has_failed(topology: Topology) -> None:
    with pytest.raises(RedisConnectionError, match="gone"):
        run(topology, RedisConnectionError("gone"))
    moved = [[0, SLOTS - 1, [b"10.0.0.1", 7003, b"id"]]]
    _, nodes = run(topology, moved, [1])
    asked, sent = nodes.sends
    assert asked == (THREE, pack(b"CLUSTER", b"SLOTS")), "not the one that failed"
    assert sent == (THREE, COMMAND.payload)
    assert nodes.asked[0].half, "some time is left for the call"  # type: ignore[union-attr]


def test_map_is_read_again_when_a_node_cannot_serve(topology: Topology) -> None:
    run(topology, ClusterDownError("The cluster is down"))
    assert len(run(topology, ALL_TO_ONE, [1])[1].sends) == 2
    assert len(run(topology, [1])[1].sends) == 1, "it has answered since"


def test_failed_node_is_asked_again_when_no_map_can_be_read(topology: Topology) -> None:
    with pytest.raises(RedisConnectionError):
        run(topology, RedisConnectionError("gone"))
    away = RedisConnectionError("away")
    reply, nodes = run(topology, away, away, away, [1])
    assert reply == [1]
    assert nodes.sends[-1] == (ONE, COMMAND.payload)


def test_map_is_read_from_the_first_node_that_returns_it(clock: Clock) -> None:
    topology = Topology([ONE, TWO, THREE], clock=clock)
    nodes = Nodes(RedisConnectionError("away"), ResponseError("no cluster"), MAP)
    drive(discover(topology), nodes)
    assert [address for address, _ in nodes.sends] == [ONE, TWO, THREE]
    assert topology.primaries == (ONE, Address("10.0.0.2", 7002))
    assert (topology.owner(0), topology.owner(16383)) == (ONE, Address("10.0.0.2", 7002))


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ([RedisConnectionError("away")] * 2, "away"),
        ([ResponseError("no cluster")] * 2, "no cluster"),
        ([[], []], "no slots are assigned"),
    ],
)
def test_missing_map_is_an_outage(replies: Sequence[Any], reason: str) -> None:
    topology = Topology([ONE, TWO])
    expected = f"no node of the cluster returned its slots: {reason}"
    with pytest.raises(RedisConnectionError, match=expected):
        run(topology, *replies)


def test_slot_without_a_node_is_an_outage() -> None:
    topology = Topology([ONE])
    half = [[0, 0, [b"10.0.0.1", 7001, b"id"]]]
    with pytest.raises(ClusterDownError, match="no node serves slot"):
        run(topology, half)


def test_node_without_a_host_is_on_the_host_that_was_asked(clock: Clock) -> None:
    topology = Topology([ONE], clock=clock)
    topology.learn(ONE, [[0, 1, [None, 7005, b"id"]], [2, 3, [b"", 7006, b"id"]]])
    assert topology.owner(0) == Address("10.0.0.1", 7005)
    assert topology.owner(3) == Address("10.0.0.1", 7006)


def test_owner_that_is_known_is_not_asked_for(topology: Topology) -> None:
    nodes = Nodes()
    assert drive(owner(topology, 5), nodes) == ONE
    assert not nodes.asked


@pytest.mark.parametrize("known", [True, False])
def test_map_is_read_once_for_several_calls_when_no_node_replies(
    topology: Topology, known: bool
) -> None:
    if known:
        topology.failed(ONE)
    else:
        topology = Topology([ONE, TWO, THREE])
    asked = []

    def answer(step: Any) -> Any:
        if isinstance(step, SendAll):
            return [[[1]] * send.replies for send in step.sends]
        asked.append(step.address)
        raise RedisConnectionError("away")

    replies = drive(route_all(topology, [COMMAND] * 3), answer)
    assert sorted(asked) == [ONE, TWO, THREE]
    if known:
        assert replies == [[1]] * 3, "the map in memory may still be right"
    else:
        assert [type(reply) for reply in replies] == [RedisConnectionError] * 3


def test_calls_fail_when_no_node_knows_the_slots() -> None:
    def answer(step: Any) -> Any:
        return [] if isinstance(step, SendAll) else [[]]

    replies = drive(route_all(Topology([ONE, TWO]), [COMMAND] * 2), answer)
    text = "no node of the cluster returned its slots: no slots are assigned"
    assert [str(reply) for reply in replies] == [text] * 2


def test_nodes_that_failed_are_asked_last(topology: Topology, clock: Clock) -> None:
    topology.failed(ONE)
    clock.now += 1
    topology.failed(TWO)
    assert topology.sources() == [THREE, ONE, TWO]
    topology.answered(TWO)
    assert topology.sources() == [THREE, TWO, ONE]


def test_node_that_fails_while_a_call_is_followed_fails_that_call_alone(
    topology: Topology,
) -> None:
    error = RedisConnectionError("the other node is away")
    moved = MovedError(to(TWO))

    def answer(step: Any) -> Any:
        if isinstance(step, SendAll):
            return [[moved, [1]]]
        raise error

    assert drive(route_all(topology, [COMMAND, COMMAND]), answer) == [error, [1]]
