"""A real Kubernetes on this machine. `runtime.choose()` is the way in; nothing above knows which runtime it got."""
