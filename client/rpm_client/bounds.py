"""What the server accepts at most, as docs/bounds.md says."""

# Tasks of a request for many.
MANY = 1000
NAME_LENGTH = 200
