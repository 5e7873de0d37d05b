"""This app beside its peers: speed, memory, and what limiters get wrong."""

import sys
from pathlib import Path

# The folder scripts knows how to find a Redis server.
sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
