"""What runs and nodes really used, as money: the door between isthmus.runs and isthmus.costs."""
