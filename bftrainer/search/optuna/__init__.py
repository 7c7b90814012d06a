"""Optuna's part: samplers, and storages for dashboards and other code of Optuna."""
