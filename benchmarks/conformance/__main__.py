"""Compare: `python -m benchmarks.conformance [--quick] [--contender NAME] [SCENARIO ...]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from .. import readme
from ..facts import facts, occasion
from ..progress import Progress
from ..server import running
from .lab import Lab
from .scenarios import SCENARIOS, measured
from .table import AGAIN, MEASURED, Table
from .worker import load

FOLDER = readme.STORED
HERE = "benchmarks.conformance.contenders"
CONTENDERS = {
    "ours": f"{HERE}.ours:OURS",
    "django-ratelimit": f"{HERE}.ratelimit:DECORATOR",
    "smart-decorator": f"{HERE}.smart_ratelimit:DECORATOR",
    "smart-middleware": f"{HERE}.smart_ratelimit:MIDDLEWARE",
    "drf": f"{HERE}.rest_framework_throttling:THROTTLE",
    "limits": f"{HERE}.alisaifee_limits:MOVING_WINDOW",
    "throttled-py": f"{HERE}.throttled_py:SLIDING_WINDOW",
    "pyrate-limiter": f"{HERE}.pyrate:PYRATE",
}


def main() -> None:
    options = _options()
    # Rows that are not measured now keep their results.
    table = Table.load(options.output)
    names = options.contender or list(CONTENDERS)
    paths = [CONTENDERS.get(name, name) for name in names]
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch)) as server:
        again = options.contender or options.scenarios != list(SCENARIOS)
        size = "quick" if options.quick else "full"
        table.facts |= {AGAIN if again else MEASURED: occasion(size), **facts(server)}
        progress = Progress()
        for path in paths:
            contender = load(path)
            progress.begin(contender.name, len(options.scenarios))
            for slug in options.scenarios:
                lab = Lab(server, path, quick=options.quick)
                table.cells[slug, contender.name] = measured(lab, slug)
                progress.step(slug)
            progress.end()
            table.save(options.output)
    if options.output == FOLDER:
        readme.write()
    print(table.markdown())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conformance", description=__doc__)
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"any of: {', '.join(SCENARIOS)}"
    )
    parser.add_argument(
        "--contender",
        action="append",
        metavar="NAME",
        help=f"any of: {', '.join(CONTENDERS)}; or module:name of one of your own",
    )
    parser.add_argument("--quick", action="store_true", help="measure less")
    parser.add_argument(
        "--output", type=Path, default=FOLDER, help="folder of the results (docs/benchmarks)"
    )
    options = parser.parse_args()
    unknown = set(options.scenarios) - set(SCENARIOS)
    if unknown:
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}")
    options.scenarios = options.scenarios or list(SCENARIOS)
    return options


if __name__ == "__main__":
    main()
