"""This process: its trainer and place, its connection to the agent, what it reports and warns of."""
