"""The API's routes, one module for each kind of object. A route parses, asks the module that knows, and shows the answer."""
