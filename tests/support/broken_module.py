"""A module whose import fails."""

tenant = 1 / 0
