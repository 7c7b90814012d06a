"""Methods that find the cheapest plan on time. Pure."""
