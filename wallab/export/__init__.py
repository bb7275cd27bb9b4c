"""Tables as text, Markdown, CSV and JSON: functions of a table alone, so the same every time."""
