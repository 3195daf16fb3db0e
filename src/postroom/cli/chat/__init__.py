"""What `postroom chat` is made of; imported only when it runs."""
