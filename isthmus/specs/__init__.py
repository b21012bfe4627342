"""Frozen models shared by every layer. No I/O here, except stack.py, which alone reads stack settings."""
