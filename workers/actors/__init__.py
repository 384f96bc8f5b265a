"""One module a kind of work: what a claimed job does, through `core`. They know neither Dramatiq nor Redis."""
