"""Measure, and write the report: `python -m benchmarks [--quick] [SECTION ...]`."""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import django
from django.core.management import call_command

from .bench import SIZES, Bench
from .progress import Progress
from .results import Results
from .server import running

ROOT = Path(__file__).resolve().parent.parent
SECTIONS = ("library", "views")


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, running() as server:
        os.environ["REDIS_URL"] = server.url
        os.environ["BENCH_DATABASE"] = f"{folder}/database.sqlite3"
        os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
        django.setup()
        call_command("migrate", verbosity=0)
        bench = Bench(server, SIZES[options.size], Progress(), Path(folder))
        results = Results()
        for name in options.sections:
            module = __import__(f"benchmarks.sections.{name}", fromlist=["run"])
            results.replace(name, module.run(bench))
            bench.progress.end()
    for row in results.rows:
        print(row.case, row.contender, {k: round(v,2) for k,v in row.values.items()}, row.note)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", default=SECTIONS)
    parser.add_argument("--size", default="full", choices=SIZES)
    parser.add_argument("--quick", dest="size", action="store_const", const="quick")
    return parser.parse_args()


if __name__ == "__main__":
    main()
