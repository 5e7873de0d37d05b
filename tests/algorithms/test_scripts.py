from __future__ import annotations

import hashlib
from itertools import chain, combinations

import pytest

from django_slidingwindow.algorithms.scripts import SCRIPT_VERSION, in_use, script
from django_slidingwindow.policies import ALGORITHMS, Policy

SETS = list(chain.from_iterable(combinations(sorted(ALGORITHMS), size) for size in range(1, 5)))


def test_algorithms_in_use_are_sorted() -> None:
    one, two = (Policy(limit=1, window=1, algorithm=name) for name in ("log", "compact"))
    assert in_use((one, two, one)) == in_use((two, one)) == ("compact", "log")


@pytest.mark.parametrize("evaluator", ["evaluate", "refund"])
@pytest.mark.parametrize("algorithms", SETS, ids="+".join)
def test_source_names_its_version_and_has_the_named_algorithms(
    evaluator: str, algorithms: tuple[str, ...]
) -> None:
    composed = script(evaluator, algorithms)
    first = composed.source.partition("\n")[0]
    named = ", ".join(algorithms)
    assert first == f"-- django_slidingwindow {evaluator}, version {SCRIPT_VERSION}: {named}"
    for name in ALGORITHMS:
        assert (f"-- {name}: " in composed.source) == (name in algorithms)
    assert "--- " not in composed.source, "every section is in its place"
    assert composed.sha == hashlib.sha1(composed.source.encode()).hexdigest()


@pytest.mark.parametrize("algorithms", SETS, ids="+".join)
@pytest.mark.parametrize("leases", [False, True])
def test_script_has_code_for_penalties_only_when_it_needs_it(
    algorithms: tuple[str, ...], leases: bool
) -> None:
    assert "penalt" not in script("evaluate", algorithms, leases=leases).source
    penalizing = script("evaluate", tuple(sorted((*algorithms, "penalty"))), leases=leases).source
    assert "-- penalty: " in penalizing
    assert "--- " not in penalizing
    assert ("-- lease: " in penalizing) is leases


@pytest.mark.parametrize("algorithms", SETS, ids="+".join)
def test_script_has_code_for_leases_only_when_it_needs_it(
    algorithms: tuple[str, ...],
) -> None:
    assert "lease" not in script("evaluate", algorithms).source
    leasing = script("evaluate", algorithms, leases=True).source
    assert "-- lease: " in leasing
    assert "--- " not in leasing, "every section is in its place"


def test_each_set_of_algorithms_has_one_sha() -> None:
    scripts = [script(end, algorithms) for end in ("evaluate", "refund") for algorithms in SETS]
    scripts += [script("evaluate", algorithms, leases=True) for algorithms in SETS]
    assert len({composed.sha for composed in scripts}) == len(scripts) == 45
    assert script("evaluate", SETS[0]) is script("evaluate", SETS[0])
