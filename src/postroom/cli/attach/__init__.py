"""What an agent does, shown while it does it; imported only by the commands that show it."""
