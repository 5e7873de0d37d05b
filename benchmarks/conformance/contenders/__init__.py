"""The peers and this app, each configured at its best."""
