"""Formats that are files: msgpack, safetensors, NumPy's."""
