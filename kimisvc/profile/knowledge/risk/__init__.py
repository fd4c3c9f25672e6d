"""What a setting may cost: by its name and value, and against what the profile allows."""
