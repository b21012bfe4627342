"""The move itself: recorded steps, gone on with after any end, and the way back."""
