"""The message tables, one file for each API."""
