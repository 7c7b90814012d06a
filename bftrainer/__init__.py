"""bftrainer: train neural networks on the idle nodes of a batch-scheduled supercomputer.

After Liu, Papka, Kettimuthu and Foster, "BFTrainer: Low-Cost Training of Neural Networks on
Unfillable Supercomputer Nodes" (2021). `docs/contributing/architecture.md` says which module does what.
"""

__version__ = "0.9.0"
