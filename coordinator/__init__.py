"""The group coordinator: a pure state machine. Requests and times in, effects out."""
