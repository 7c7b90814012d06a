"""The emulated cluster without processes, sockets or clocks of its own: time comes with every call."""
