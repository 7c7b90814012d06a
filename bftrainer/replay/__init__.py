"""The engine on a virtual clock: log readers, a simulated launcher, metrics."""
