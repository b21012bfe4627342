"""Shared cards on a live cluster: trying a mode on this machine, changing from one to another, comparing them."""
