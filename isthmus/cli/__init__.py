"""The `isthmus` command: thin commands over the toolkit, each in a module that loads only when it is called."""
