"""The user's model: made from its file, bound to the leaves of a checkpoint, and traced with a tag at every call."""
