"""Parts that commands on trainers and their workers share."""
