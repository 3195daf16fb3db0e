"""The worker in the language A2A: what its agent asks others for, what others may ask of it, and the doors to both."""
