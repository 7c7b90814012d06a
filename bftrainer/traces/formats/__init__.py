"""The formats of logs, one reader a file: lines in, intervals of idle nodes out."""
