"""Every peer and this app in the situations that rate limiters get wrong."""
