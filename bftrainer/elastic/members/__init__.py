"""The members of a trainer: published memberships, and the process groups formed from them."""
