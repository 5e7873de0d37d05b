"""Combine and print the coverage of a run, and apply the coverage gate if the whole suite ran.

If the whole suite ran without skips, coverage must be 100 %. Otherwise it is only printed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.suite.report import Summary


def main() -> int:
    path = Path(os.environ["TEST_SUMMARY"])
    summary = Summary.load(path)
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "combine", "--quiet"], check=True)
    whole = summary.complete and not summary.skipped
    options = [] if whole else ["--fail-under=0"]
    code = subprocess.run([*coverage, "report", *options], check=False).returncode
    if whole:
        verdict = "Coverage: the gate of 100 % applies, because the whole suite ran."
    else:
        verdict = "Coverage: the gate of 100 % does not apply, because not everything ran."
    print(verdict)
    summary.lines.append(verdict)
    summary.save(path)
    return code


if __name__ == "__main__":
    sys.exit(main())
