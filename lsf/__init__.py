"""IBM Spectrum LSF around bftrainer: an emulated LSF on one machine to try it on."""
