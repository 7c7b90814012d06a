"""The vocabulary: frozen dataclasses that every other room speaks. Imports nothing."""
