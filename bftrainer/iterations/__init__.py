"""The order of several trainers' iterations on shared devices, after Jigsaw (Kumar et al. 2021). Pure."""
