"""The vocabulary: frozen dataclasses that every other package uses. Imports nothing."""
