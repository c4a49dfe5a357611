"""What the target learns: tasks of six domains, each with a generator of prompts and a checker of answers."""
