"""What proves a result: structure, values, references, statistics, the record of what was done."""
