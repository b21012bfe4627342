"""What a move would do, before it does anything."""
