"""Scripts on torchrun or Elastic Horovod that save, stop and resume by themselves."""
