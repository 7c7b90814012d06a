"""Files that a browser loads: the page of `bftrainer web` and of `bftrainer report --interactive`."""
