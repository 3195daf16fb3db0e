"""The left: what needs the person, projects, workers."""
