"""Records to text, HTML, trace and SARIF."""
