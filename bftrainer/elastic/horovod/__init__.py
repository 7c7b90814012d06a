"""Trainers on Elastic Horovod: the process that leads their workers, and what each worker needs for it."""
