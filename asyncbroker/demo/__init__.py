"""What the demos show: a group whose members come, go and are killed, and nothing is lost."""
