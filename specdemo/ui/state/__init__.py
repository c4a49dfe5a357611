"""What can be set on the page, and what it means: no component is known here."""
