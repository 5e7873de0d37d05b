"""Compare this app with its peers: speed, memory, and the mistakes of rate limiters."""

import sys
from pathlib import Path

# For scripts/redis_binary.py, which finds a Redis server.
sys.path.append(str(Path(__file__).resolve().parent.parent / "scripts"))
