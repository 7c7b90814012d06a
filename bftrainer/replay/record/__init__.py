"""What a replay leaves behind for its report: taken down while it runs, kept in a file."""
