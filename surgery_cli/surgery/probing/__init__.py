"""The probe as a use case: the user's model on a checkpoint, on two of them, and on a result before its commit."""
