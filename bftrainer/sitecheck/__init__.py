"""Checks a site's set-up for `bftrainer admin check`: looks, changes nothing, and says what to do."""
