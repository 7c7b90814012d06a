"""Studies that run: a thread decides, trials become trainers, forecasts follow the pool."""
