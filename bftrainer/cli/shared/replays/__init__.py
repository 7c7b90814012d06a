"""Parts that commands on logs and replays share."""
