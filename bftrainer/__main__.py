"""`python -m bftrainer` is `bftrainer`."""

from bftrainer.cli import main

main()
