"""What a site or user can set: one frozen object, in sections, from command line, environment and files."""
