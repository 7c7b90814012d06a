"""Reports: a page with tables and pictures of one or more replays."""
