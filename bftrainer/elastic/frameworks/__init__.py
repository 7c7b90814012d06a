"""Scripts that another library trains."""
