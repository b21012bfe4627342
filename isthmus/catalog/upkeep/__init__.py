"""Keeping the facts current: prices read from the clouds' own price APIs, and what differs between two folders of facts."""
