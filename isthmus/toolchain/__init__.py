"""The programs isthmus runs: where they are, how they are installed, what is missing."""
