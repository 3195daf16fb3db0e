"""A2A tasks as the post room keeps them: their rules, what follows from them, and what people are shown."""
