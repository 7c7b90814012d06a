"""Settings of a site or user: one frozen object, in sections, from command line, environment and files."""
