"""A run as text, Markdown, CSV, page and plots: functions of what it says, the same every time."""
