"""Fuzzing: every reader is given what nobody writes, in processes whose memory and time are bounded."""
