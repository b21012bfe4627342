"""The training service: many users, one platform, on whichever cloud. An HTTP API, a queue and an algorithm registry."""
