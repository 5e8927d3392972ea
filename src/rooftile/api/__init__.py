"""The public functions, one verb a file. Each composes rooms; importing one loads nothing heavy."""
