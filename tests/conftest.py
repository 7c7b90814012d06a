"""No test is judged by how fast a busy machine is: speed lives in benchmarks/."""

from hypothesis import settings

settings.register_profile("bftrainer", deadline=None)
settings.load_profile("bftrainer")
