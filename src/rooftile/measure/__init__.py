"""What a GPU did, measured: beside what was predicted."""
