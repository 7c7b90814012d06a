"""Workers of trainers on one cluster by goodput: how many each has, exactly, and then where. Pure."""
