"""Scripts written for Elastic Horovod: a driver process per trainer lets the workers find each other."""
