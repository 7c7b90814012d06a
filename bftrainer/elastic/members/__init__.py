"""Published memberships, and process groups that come and go with them."""
