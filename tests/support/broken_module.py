"""A module of a project that cannot be imported."""

tenant = 1 / 0
