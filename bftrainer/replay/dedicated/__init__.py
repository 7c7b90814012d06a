"""Jobs on a dedicated cluster, replayed in ticks from measured speeds and gradient noise."""
