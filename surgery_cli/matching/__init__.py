"""Which leaf of one tree is which leaf of another: by shapes, by names, by values; and the edits that take it there."""
