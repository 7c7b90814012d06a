"""Study files: their keys, what is checked of them, and the space that they describe."""
