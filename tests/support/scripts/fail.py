"""A trainer whose program is wrong."""

print("about to divide")
1 / 0  # noqa: B018
