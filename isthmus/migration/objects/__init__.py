"""Object data from one bucket to another, whatever clouds they are in."""
