"""HTTP requests to URLs that somebody named: signed, sent through the guard, tried again by a schedule."""
