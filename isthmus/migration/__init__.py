"""Moving from one cloud to another and back. README.md says what is here."""
