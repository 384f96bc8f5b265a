"""Job states, children, retry policy: the rows that must not be lost. The protocol is in `sql/functions`."""
