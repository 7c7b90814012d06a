"""Tests whether main jobs notice bftrainer: runs with and without it, and why jobs started late."""
