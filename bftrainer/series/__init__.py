"""The course of one trainer, from its stored reports: as CSV, in a picture, for TensorBoard."""
