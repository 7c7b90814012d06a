"""Testbeds, whatever the batch system: main jobs come and go there, with bftrainer and without."""
