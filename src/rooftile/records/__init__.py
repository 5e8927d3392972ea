"""What one stage hands to the next: frozen dataclasses with a JSON form, one record a file."""
