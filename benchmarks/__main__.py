"""Measure, and write the report: `python -m benchmarks [--quick] [SECTION ...]`."""

from __future__ import annotations

import argparse
import atexit
import importlib
import os
import shutil
import tempfile
from pathlib import Path

import django
from django.core.management import call_command

from . import readme, report
from .bench import SIZES, Bench
from .chapters import CHAPTERS
from .contenders.base import missing
from .facts import facts, occasion
from .progress import Progress
from .report import DOCS, PAGE
from .results import Results
from .server import running


def main() -> None:
    options = _options()
    scratch = Path(tempfile.mkdtemp(prefix="bench-"))
    # At exit, because the rejection log is written until then.
    atexit.register(shutil.rmtree, scratch, ignore_errors=True)
    with running(scratch) as server:
        os.environ["REDIS_URL"] = server.url
        os.environ["BENCH_DATABASE"] = str(scratch / "database.sqlite3")
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        django.setup()
        call_command("migrate", verbosity=0)
        _measure(Bench(server, SIZES[options.size], Progress()), options)
    if options.output == DOCS:
        readme.write()
    print(options.output / PAGE)


def _measure(bench: Bench, options: argparse.Namespace) -> None:
    folder = options.output / "benchmarks"
    # Sections that are not measured now keep their results.
    results = Results.load(folder / "results.json")
    results.facts |= facts(bench.server)
    for name in options.sections or CHAPTERS:
        section = importlib.import_module(f"benchmarks.sections.{name}")
        # Sections may be measured at different times, so each has its own.
        results.facts[f"measured {name}"] = occasion(options.size)
        results.replace(name, section.run(bench))
        bench.progress.end()
        report.write(results, folder, options.output / PAGE, missing())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"any of: {', '.join(CHAPTERS)}"
    )
    parser.add_argument("--size", default="full", choices=SIZES, help="how much is measured")
    parser.add_argument(
        "--quick", dest="size", action="store_const", const="quick", help="ends within a minute"
    )
    parser.add_argument(
        "--output", type=Path, default=DOCS, help="the folder of the report (default: docs)"
    )
    options = parser.parse_args()
    unknown = set(options.sections) - set(CHAPTERS)
    if unknown:
        parser.error(f"there is no section {', '.join(sorted(unknown))}")
    return options


if __name__ == "__main__":
    main()
