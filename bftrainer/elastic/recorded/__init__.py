"""The recorder of rehearsals (`bftrainer try`): notes within a worker's process what a script does."""
