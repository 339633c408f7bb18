"""What `asyncbroker demo` and `scripts/demo` show: a group whose members come, go and are killed."""
