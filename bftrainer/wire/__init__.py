"""What daemon and agents say to each other: typed, checked and sealed."""
