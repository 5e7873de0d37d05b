"""What libraries without requests have in common."""

from __future__ import annotations

_KEY = "the key is yours"
LACKS = {
    "several": "one limit per call",
    "spoofed": _KEY,
    "proxy": _KEY,
    "mapped": _KEY,
    "subnet": _KEY,
}
