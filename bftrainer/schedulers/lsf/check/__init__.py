"""Checks of a site's LSF for `bftrainer lsf check`, and of its accounting."""
